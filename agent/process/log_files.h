// LogFiles: the folders of a run's logs and error files, in torchrun's layout.
//
//   <base>/<run id>_<8 random>/attempt_<restart count>/<local
//   rank>/{stdout.log,stderr.log,error.json}
//                                                     /filtered_{stdout,stderr}.log
//
// base is --log-dir, or a fresh torchelastic_<8 random> under TMPDIR.  The run's folder is made
// once and is ours alone (0700).  A second start with one restart count (a membership change) gets
// attempt_<n>.1, attempt_<n>.2 …, so nothing that was written is ever erased.  --log-dir /dev/null:
// no folder at all.
#pragma once

#include "runtime/base/ids.h"
#include "runtime/base/result.h"

#include <map>
#include <string>
#include <string_view>

namespace distrun::agent {

// A folder name out of a run id: '/' and control characters become '_'; at most 128 bytes.
std::string run_folder_name(std::string_view run_id, std::string_view random);

// Where a worker may leave its exception if nobody asked for files: a name in TMPDIR that nobody
// can guess, and nothing there until the worker writes.  (Making and removing a folder costs more
// than starting a worker.)
class LooseErrorFiles {
 public:
  explicit LooseErrorFiles(const std::string& temporary);
  // `round`: a new number for each round, so that no file of an older one is taken for a newer.
  std::string path(int round, LocalRank local_rank) const;
  // Removes what the rounds from 1 to `last` left.
  void remove(int last, int nproc) const;

 private:
  std::string stem_;
};

class LogFiles {
 public:
  // `base`: --log-dir, may be empty.  `temporary`: where the base goes if it is.
  LogFiles(std::string base, std::string temporary, std::string run_id);

  // --log-dir /dev/null.
  bool disabled() const { return base_ == "/dev/null"; }

  // Makes what is missing of base, run and attempt folder.
  Result<bool> open_attempt(int restart_count);
  // Makes the folder of one worker in the attempt.
  Result<std::string> open_rank(LocalRank local_rank);

  // Empty while there is none.
  const std::string& run_folder() const { return run_; }
  const std::string& attempt_folder() const { return attempt_; }

 private:
  Result<bool> open_base();
  Result<bool> open_run();

  std::string base_;
  std::string temporary_;
  std::string run_id_;
  std::string run_;
  std::string attempt_;
  std::map<int, int> starts_;  // restart count -> how often it was started
};

}  // namespace distrun::agent
