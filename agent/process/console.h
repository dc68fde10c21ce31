// Console: our own stdout and stderr, shared by all workers, the program's log and a progress line.
//
// Writers hand over text; the console keeps lines whole.  It never blocks on a slow reader and
// never changes the flags of a descriptor that others share.  A reader that is too slow makes
// full() true: whoever has a choice stops reading its own source until on_room.  A reader that is
// gone is told once in the log; from then on that stream swallows everything.
//
// If stdout and stderr are one file (a terminal, 2>&1) they are one stream here, in order.
#pragma once

#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace distrun::agent {

class Console {
 public:
  enum class Stream { out, err };

  // Ignores SIGPIPE for the process: a closed console is an error value here, not a death.
  explicit Console(boost::asio::io_context& io, int out_fd = 1, int err_fd = 2);
  ~Console();
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  // Text of one worker's stream, told apart by `owner` (>= 0).  If `text` ends without a newline
  // the line stays open for its owner; another writer completes it with a newline first. `prefix`
  // is put before each line that begins in `text`, and again before the rest of a line that was
  // completed that way.
  void write(Stream stream, int owner, std::string_view prefix, std::string_view text);

  // Whole lines of the program itself, to stderr: log lines, reports.  (log::set_sink.)
  void write_log(std::string_view lines);

  // One line at the bottom of a terminal on stderr; gone before anything else is written, back when
  // it is quiet.  Without a terminal, or when workers write to it directly: does nothing.
  void set_status_line(std::string_view text);
  void forbid_status_line();
  bool on_terminal() const;

  // More waits to be written than is good: stop reading.
  bool full(Stream stream) const;
  // Called from the loop when a stream that was full has room again.
  void on_room(std::function<void()> call);
  // Called from the loop when nothing waits to be written any more.
  void on_empty(std::function<void()> call);
  bool empty() const;
  std::size_t waiting() const;  // bytes, to be written

  // Before the end: takes the progress line away and, on a terminal, completes open lines
  // (elsewhere bytes are passed on as they are).  What waits goes on being written from the loop:
  // on_empty.
  void wind_up();
  // At the end: writes what waits, blocking until `limit` at most.  False: something is left.
  bool finish(Duration limit);

  // A stream could not be written for another reason than a reader that has gone: a full disk.
  bool lost_output() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace distrun::agent
