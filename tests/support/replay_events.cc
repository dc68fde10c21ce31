#include "tests/support/replay_events.h"

#include "rendezvous/core/coordinator.h"
#include "rendezvous/server/event_file.h"

#include <deque>
#include <istream>
#include <memory>
#include <optional>
#include <ostream>
#include <variant>

namespace distrun::test {
namespace {

using namespace rendezvous;

std::string text_of(const Happening& happening) {
  const Fence& round = happening.round;
  std::string text = std::string(to_string(happening.kind)) + " [" + happening.job + " " +
                     std::to_string(round.epoch) + "." + std::to_string(round.generation.value) +
                     "] ";
  if (!happening.host.empty()) text += happening.host + " (" + happening.node + "): ";
  return text + happening.text;
}

class Replay {
 public:
  explicit Replay(std::ostream& story) : story_(story) {}

  // False: there is nothing more to be compared.
  bool take(std::string_view line) {
    ++line_;
    if (line.empty()) return true;
    auto parsed = parse_event_line(line);
    if (!parsed) {
      // The last line of a coordinator that was killed; another one may follow.
      if (torn_.empty()) torn_ = "line " + std::to_string(line_) + ": " + parsed.error().detail;
      return true;
    }
    if (!torn_.empty() && !std::holds_alternative<event_line::Start>(*parsed)) {
      result.unreadable = torn_;
      return false;
    }
    torn_.clear();
    return std::visit([this](const auto& event) { return on(event); }, *parsed);
  }

  void finish() {
    if (!torn_.empty()) result.incomplete = torn_ + " (the file ends there)";
    if (result.coordinators == 0 && result.unreadable.empty()) {
      result.unreadable = torn_.empty() ? "no coordinator begins in it" : torn_;
    }
    drop_unwritten();
  }

  Replayed result;

 private:
  bool on(const event_line::Start& start) {
    drop_unwritten();
    coordinator_ = std::make_unique<Coordinator>(start.limits, start.authority);
    for (const Record& record : start.records) coordinator_->restore(record, start.at);
    last_ = start.at;
    began_ = start.at;
    ++result.coordinators;
    return true;
  }

  bool on(const event_line::Input& input) {
    if (!coordinator_) return true;
    if (!expect_none()) return false;
    if (input.at < last_) {
      result.unreadable = "line " + std::to_string(line_) + ": its time is before the last one's";
      return false;
    }
    last_ = input.at;
    ++result.inputs;
    for (const Effect& effect : coordinator_->handle(input.event, input.at)) {
      if (const auto* note = std::get_if<Note>(&effect)) expected_.push_back(note->happening);
    }
    return true;
  }

  bool on(const event_line::Happened& happened) {
    ++result.happenings;
    const std::chrono::duration<double> since = happened.at - began_;
    story_ << happened.time << "  " << since.count() << " s  " << text_of(happened.happening)
           << '\n';
    if (!coordinator_) return true;
    if (expected_.empty()) return differs("nothing", text_of(happened.happening));
    const Happening replayed = std::move(expected_.front());
    expected_.pop_front();
    if (replayed == happened.happening) return true;
    return differs(text_of(replayed), text_of(happened.happening));
  }

  bool on(const event_line::Gap& gap) {
    if (!coordinator_) return true;
    result.incomplete = "line " + std::to_string(line_) + ": " + gap.why;
    coordinator_.reset();
    expected_.clear();
    return true;
  }

  bool expect_none() { return expected_.empty() || differs(text_of(expected_.front()), "nothing"); }

  // A coordinator that was killed has not written the last of what happened.
  void drop_unwritten() {
    if (expected_.empty()) return;
    result.incomplete =
        "line " + std::to_string(line_) +
        ": a coordinator ended before it had written: " + text_of(expected_.front());
    expected_.clear();
  }

  bool differs(const std::string& replayed, const std::string& recorded) {
    result.difference =
        "line " + std::to_string(line_) + "\n  recorded: " + recorded + "\n  replayed: " + replayed;
    return false;
  }

  std::ostream& story_;
  std::size_t line_ = 0;
  std::string torn_;
  std::unique_ptr<Coordinator> coordinator_;  // null: nothing can be replayed here
  std::deque<Happening> expected_;            // replayed, not yet found in the file
  TimePoint last_{};
  TimePoint began_{};
};

}  // namespace

Replayed replay_events(std::istream& events, std::ostream& story) {
  Replay replay(story);
  std::string line;
  bool more = true;
  while (more && std::getline(events, line)) more = replay.take(line);
  if (more) replay.finish();
  return std::move(replay.result);
}

}  // namespace distrun::test
