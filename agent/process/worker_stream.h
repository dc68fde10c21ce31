// WorkerStream: one pipe from one worker, and all that is done with its bytes: file, console,
// filtered lines, and the tail for the report.
//
// Reads when there is something and the console has room.  Owns the reading end; the child's end is
// kept until it was given away.
#pragma once

#include "agent/process/console.h"
#include "agent/process/last_lines.h"
#include "agent/process/line_splitter.h"
#include "agent/process/log_file_sink.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace distrun::agent {

// The lines that contain one of `words`, of all ranks, in one file (--duplicate-stdout-filters).
struct LineFilter {
  std::vector<std::string> words;
  LogFileSink file;
};

class WorkerStream : public std::enable_shared_from_this<WorkerStream> {
 public:
  // How long an unfinished line is held.  One that ends with a full block is cut by a buffer that
  // ran over, not written for somebody who waits to read it: its rest comes with the next block.
  static constexpr Duration kHold = std::chrono::milliseconds(100);
  static constexpr Duration kHoldBlock = std::chrono::seconds(2);

  struct Ways {
    LogFileSink file{};  // teed
    bool on_console = true;
    Console::Stream stream = Console::Stream::out;
    int owner = 0;                 // of console lines
    std::string prefix{};          // before each line on the console; empty if not teed
    LineFilter* filter = nullptr;  // outlives the stream's open time
    Duration hold_block = kHoldBlock;
  };

  // `ended`: called once, when the pipe is at its end (not by close).
  WorkerStream(boost::asio::io_context& io, Console& console, Ways ways,
               std::function<void()> ended);

  // A pipe of about `size` bytes, if the kernel allows that much.
  Result<bool> open(int size);
  int child_end() const { return child_end_; }
  void close_child_end();

  // Takes what is in the pipe now, without waiting, room or not; passes on an unfinished line, too.
  void drain();
  void resume();  // the console has room again
  void close();   // drains first
  bool closed() const { return closed_; }

  const ByteTail& tail() const { return tail_; }

 private:
  enum class Took { something, nothing, end };

  void wait();
  void on_readable();
  Took read_once(std::size_t& taken);
  void take(std::string_view bytes);
  void to_console(std::string_view text);
  void match(std::string_view lines);
  void hold();
  void on_held();
  void pass_on_held();
  std::size_t in_pipe();
  Took take_present();
  void at_end();
  void release();

  Console& console_;
  Ways ways_;
  std::function<void()> ended_;
  boost::asio::posix::stream_descriptor pipe_;
  boost::asio::steady_timer hold_timer_;
  int child_end_ = -1;
  LineSplitter lines_;
  LineSplitter filter_lines_;
  TimePoint held_since_;
  Duration held_for_ = kHold;
  ByteTail tail_;
  bool waits_ = false;
  bool hold_runs_ = false;
  bool closed_ = false;
};

}  // namespace distrun::agent
