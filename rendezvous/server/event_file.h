// EventFile: what happened in a coordinator, and all that it was told, as JSON lines in a file, so
// that an incident can be read and be replayed (scripts/replay).  docs/events.md has the schema.
//
//   auto events = EventFile::open("events.jsonl");
//   (*events)->start(limits, authority, records, now);   // what Coordinator begins with
//   (*events)->on_input(event, now);                     // before coordinator.handle(event, now)
//   (*events)->on_happening(happening, now);             // for each Note it answered with
//
// Lines are appended whole and at once, without waiting for the disk.  A file that takes no more (a
// full disk, a pipe that nobody empties) is said once on stderr; lines wait in a buffer of bounded
// size, are left out when that is full, and their number is written as soon as it works again.  The
// coordinator never waits for it and never fails by it.
//
// Secrets are not written: a token becomes "token-1", the same one in every line.
#pragma once

#include "rendezvous/core/coordinator.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

struct EventFileOptions {
  // Inputs are written up to this size of the file, happenings up to twice as much.
  std::uintmax_t max_bytes = 1024UL * 1024 * 1024;
  std::size_t max_waiting = 1024UL * 1024;  // bytes of lines that could not be written yet
  std::function<std::chrono::system_clock::time_point()> wall = std::chrono::system_clock::now;
};

class EventFile {
 public:
  // Goes on at the end of a file that is there.  The error names it.
  static Result<std::unique_ptr<EventFile>> open(const std::string& path,
                                                 EventFileOptions options = {});
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  void start(const CoordinatorLimits& limits, const Authority& authority,
             const std::vector<Record>& records, TimePoint now);
  void on_input(const Event& event, TimePoint now);
  void on_happening(const Happening& happening, TimePoint now);

 private:
  class Writer;
  explicit EventFile(std::unique_ptr<Writer> writer);
  std::unique_ptr<Writer> writer_;
};

// ---- reading it --------------------------------------------------------------------------------

namespace event_line {
struct Start {  // a coordinator begins; nothing before it matters any more
  TimePoint at;
  CoordinatorLimits limits;
  Authority authority;
  std::vector<Record> records;
};
struct Input {
  TimePoint at;
  Event event;
};
struct Happened {
  TimePoint at;
  std::string time;  // of day, RFC 3339
  Happening happening;
};
struct Gap {  // what follows cannot be replayed up to the next Start
  std::string why;
};
}  // namespace event_line
using EventLine =
    std::variant<event_line::Start, event_line::Input, event_line::Happened, event_line::Gap>;

// One line without its line feed.  Never throws; fields that are not known are ignored.
Result<EventLine> parse_event_line(std::string_view line);

}  // namespace distrun::rendezvous
