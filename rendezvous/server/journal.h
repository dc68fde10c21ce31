// Journal: what a coordinator must still know after it was killed.  One file in a folder that
// belongs to one daemon at a time; save() returns when the record is on the disk.
//
//   distrun-journal 1
//   0000012f 8d3c55a1 {"save":{"job":"a", …}}
//   0000000e 51f2077c {"forget":"a"}
//
// A line each: length of the JSON and its CRC-32, in hexadecimal, and the JSON (a record, as in
// protocol/record_json.h).  The last line of a job counts.  A file that has grown to several times
// what it says is written anew beside itself and renamed.
//
// open() tells a torn tail from damage:
// - a last line that was not written to its end was never promised to anybody.  It is cut off, with
//   a warning that names the file and the offset.
// - anything else that is not as written is an error: the disk or somebody changed what was
//   promised, and going on without it could begin a second job beside a running one.  The error
//   says where, and what to do.
//
// Blocking: a save() is one write and one fdatasync, about as long as the disk takes.
#pragma once

#include "rendezvous/core/rendezvous.h"
#include "runtime/base/result.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::rendezvous {

struct JournalOptions {
  // The file is written anew when it is larger than this and than four times its contents.
  std::size_t compact_above = 1024UL * 1024;
  // For tests: called before each system call that changes something, with its name; an errno to
  // fail with instead of it, 0 to go on.
  std::function<int(std::string_view step)> interfere;
};

class Journal {
 public:
  // `folder` is made if it is missing (not its parents).  Fails if another process has it open.
  static Result<std::unique_ptr<Journal>> open(const std::string& folder,
                                               JournalOptions options = {});
  ~Journal();
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  // The last one of each job that was not forgotten, in order of job.
  const std::vector<Record>& records() const;

  // Durable when it returns.  After an error (a full disk) all is as it was before; the next call
  // tries again from the ground up.
  Result<void> save(const Record& record);
  Result<void> forget(const std::string& job);

 private:
  class File;
  explicit Journal(std::unique_ptr<File> file);
  std::unique_ptr<File> file_;
};

}  // namespace distrun::rendezvous
