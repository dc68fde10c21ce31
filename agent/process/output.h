// Output: where workers' stdout and stderr go, and what is kept of them for the final report.
//
// Bytes in, bytes out; whole lines; nothing lost, whatever a worker was killed by.  Per rank and
// stream one of four ways:
//
//   redirected   the child writes into the file itself; nothing passes through here
//   teed         pipe -> file (exact bytes) and console (whole lines, each with the rank's prefix)
//   neither      pipe -> console (whole lines, no prefix), or our own fd (ConsoleMode::inherit)
//   not on the console (--local-ranks-filter)    as above, without the console
//
// For a job's life:  open_round, then per worker open_streams, spawn, close_child_ends; at each
// death worker_exited; at the round's end when_drained and close_round; at the job's end finish.
// Not thread-safe; all work is done on the io_context's thread, which is never blocked by a
// console.
#pragma once

#include "agent/core/spec.h"
#include "agent/process/console.h"
#include "runtime/base/ids.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

enum class ConsoleMode {
  lines,    // through a pipe of ours: whole lines, last lines kept for the report
  inherit,  // the child gets our fd 1 or 2: it sees a terminal if we have one; nothing is kept
};

// What a worker is to be given.  1 and 2: our own, inherited.  The descriptors are close-on-exec
// and stay ours.
struct ChildStreams {
  int out = 1;
  int err = 2;
  std::string error_file;  // TORCHELASTIC_ERROR_FILE; empty: disabled (--log-dir /dev/null)
};

class Output {
 public:
  // REQUIRES: `spec` and `console` outlive the Output; spec.log's vectors have spec.nproc entries.
  Output(boost::asio::io_context& io, const Spec& spec, Console& console, ConsoleMode mode);
  ~Output();
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  // Makes this attempt's folder if files were asked for; an earlier attempt's files are never
  // touched. An Error names the folder.  Closes a round that is still open.
  Result<bool> open_round(int restart_count);

  Result<ChildStreams> open_streams(LocalRank local_rank, Rank rank);
  // After spawn, also when it failed: without this the pipes never reach end of file.
  void close_child_ends(LocalRank local_rank);

  // Takes all that is in the worker's pipes now, without waiting, so that last_lines is complete. A
  // grandchild that still holds the pipe keeps it open; what it writes later is taken as ever.
  void worker_exited(LocalRank local_rank);

  // Every pipe is at its end and the console has taken everything.
  bool drained() const;
  // Calls once, from the loop, when drained; replaces an earlier one.  The caller has the deadline:
  // close_round ends the wait (and forgets `done`).
  void when_drained(std::function<void()> done);
  // Takes what is in the pipes, then closes them, whoever still holds the other end.
  void close_round();

  // Last lines of one stream of a worker of this (or the last) round, oldest first: from memory, or
  // from the end of its file.  Unprintable bytes are shown as \xNN.  Empty: nothing is known.
  using Stream = Console::Stream;
  std::vector<std::string> last_lines(LocalRank local_rank, Stream stream) const;

  // Files of a worker of this round; empty: there is none.
  std::string log_file(LocalRank local_rank, Stream stream) const;
  std::string error_file(LocalRank local_rank) const;
  // Folder of this run's logs, and of this round's; empty while none was made.
  const std::string& run_folder() const;
  const std::string& round_folder() const;

  // The job's end: closes the round and removes the error files that nobody asked for: those of
  // earlier rounds, and those of the last one unless its failure is reported (the report names
  // them).
  void finish(bool failure_reported);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distrun::agent
