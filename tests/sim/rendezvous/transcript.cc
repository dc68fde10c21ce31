#include "tests/sim/rendezvous/transcript.h"

#include "tests/sim/rendezvous/stage.h"

#include <array>
#include <cstdio>
#include <string_view>
#include <variant>

namespace distrun::rendezvous::sim {

namespace {

constexpr std::size_t kTailMax = 3000;

std::string number(long value) {
  return std::to_string(value);
}

std::string text(RoundResult result) {
  switch (result) {
    case RoundResult::succeeded:
      return "succeeded";
    case RoundResult::failed:
      return "failed";
    case RoundResult::stopped:
      return "stopped";
  }
  return "?";
}

std::string text(OverResult result) {
  switch (result) {
    case OverResult::succeeded:
      return "succeeded";
    case OverResult::failed:
      return "failed";
    case OverResult::timed_out:
      return "timed out";
    case OverResult::closed:
      return "closed";
  }
  return "?";
}

std::string text(NoAnswer reason) {
  switch (reason) {
    case NoAnswer::refused:
      return "refused";
    case NoAnswer::unreachable:
      return "unreachable";
    case NoAnswer::unknown:
      return "unknown";
    case NoAnswer::alien:
      return "alien";
  }
  return "?";
}

std::string text(member::GaveUp reason) {
  switch (reason) {
    case member::GaveUp::timed_out:
      return "timed out";
    case member::GaveUp::closed:
      return "closed";
    case member::GaveUp::refused:
      return "refused";
  }
  return "?";
}

std::string text(const Outcome& o) {
  return text(o.result) + " in " + to_line(o.round) + (o.failed_at_start ? " at start" : "") +
         (o.remains ? ", remains" : "");
}

std::string text(const Over& o) {
  return text(o.result) + " with " + number(o.exit_code) + ", restarts " + number(o.restarts) +
         ": " + o.why;
}

std::string line(const Join& m) {
  std::string text_of = "Join " + m.node;
  if (m.node_rank) text_of += " asks rank " + number(m.node_rank->value);
  if (m.hosts) text_of += " hosts";
  if (m.held) {
    text_of += " held " + to_line(m.held->round) + " rank " + number(m.held->rank.value) + " of " +
               number(m.held->node_count);
    text_of += m.held->outcome ? " " + text(*m.held->outcome) : " working";
  }
  return text_of;
}
std::string line(const Failed& m) {
  return "Failed " + to_line(m.round) + " rank " + number(m.failure.rank.value);
}
std::string line(const Ended& m) {
  return "Ended " + text(m.outcome);
}
std::string line(const Pong& m) {
  return "Pong " + number(static_cast<long>(m.number));
}
std::string line(const Leave& m) {
  return "Leave: " + m.why;
}
std::string line(const Welcome& m) {
  return "Welcome " + to_line(m.round) + " rank " + number(m.node_rank.value) + " of " +
         number(m.node_count) + ", world " + number(m.world_size) + " from " +
         number(m.base_rank.value) + ", master " + m.master_addr + ":" + number(m.master_port) +
         ", restart " + number(m.restart_count) + ", successors " +
         number(std::ssize(m.successors));
}
std::string line(const Waiting& m) {
  return "Waiting " + number(m.present) + " in " + number(m.min_nodes) + ".." +
         number(m.max_nodes) + (m.spare ? " spare" : "") + (m.quorum ? "" : " no quorum") +
         (m.why.empty() ? "" : ": " + m.why);
}
std::string line(const Disband& m) {
  return "Disband " + to_line(m.round) + ", left " + number(m.left) + ", heir " + m.heir + ": " +
         m.why;
}
std::string line(const Over& m) {
  return "Over " + text(m);
}
std::string line(const Refused& m) {
  return "Refused " + std::string(to_string(m.code)) + " -> " + m.address + ":" + number(m.port) +
         ": " + m.why;
}
std::string line(const Ping& m) {
  return "Ping " + number(static_cast<long>(m.number)) + " last " + to_line(m.last) +
         (m.quorum ? "" : " no quorum");
}

std::string line(const Received& e) {
  return number(e.session.value) + ": " + to_line(e.message);
}
std::string line(const Closed& e) {
  return number(e.session.value) + ": Closed";
}
std::string line(const ReachedAt& e) {
  return "ReachedAt " + e.address;
}
std::string line(const Tick&) {
  return "Tick";
}
std::string line(const Send& e) {
  return number(e.session.value) + ": " + to_line(e.message);
}
std::string line(const Drop& e) {
  return number(e.session.value) + ": Drop";
}
std::string line(const Save& e) {
  return "Save last " + to_line(e.record->last) + (e.record->over ? " over" : "");
}
std::string line(const Forget& e) {
  return "Forget " + e.job;
}
std::string line(const Note& e) {
  return "Note " + std::string(to_string(e.happening.kind)) + " " + e.happening.node + ": " +
         e.happening.text;
}

std::string line(const member::Asked& e) {
  return "Asked" + (e.outcome ? " " + text(*e.outcome) : std::string());
}
std::string line(const member::FailedHere& e) {
  return "FailedHere: " + e.failure.status;
}
std::string line(const member::Left& e) {
  return "Left: " + e.why;
}
std::string line(const member::Connected& e) {
  return number(e.dial) + ": Connected";
}
std::string line(const member::NotConnected& e) {
  return number(e.dial) + ": NotConnected, " + text(e.reason);
}
std::string line(const member::Received& e) {
  return number(e.dial) + ": " + to_line(e.message);
}
std::string line(const member::Closed& e) {
  return number(e.dial) + ": Closed";
}
std::string line(const member::Tick&) {
  return "Tick";
}
std::string line(const member::Dial& e) {
  return number(e.dial) + ": Dial " + e.contact.address + ":" + number(e.contact.port);
}
std::string line(const member::Send& e) {
  return number(e.dial) + ": " + to_line(e.message);
}
std::string line(const member::HangUp& e) {
  return number(e.dial) + ": HangUp";
}
std::string line(const member::Host& e) {
  return "Host as successor " + number(e.successor) + " from " + to_line(e.record.last);
}
std::string line(const member::StopHosting&) {
  return "StopHosting";
}
std::string line(const member::Direct& e) {
  return "Direct " + to_line(CoordinatorMessage{e.answer});
}
std::string line(const member::Placed& e) {
  return "Placed in " + to_line(e.welcome.round) + " rank " + number(e.welcome.node_rank.value);
}
std::string line(const member::Disbanded& e) {
  return "Disbanded " + to_line(e.round) + ": " + e.why;
}
std::string line(const member::JobOver& e) {
  return "JobOver " + text(e.over);
}
std::string line(const member::NoRound& e) {
  return "NoRound " + text(e.reason) + ": " + e.why;
}
std::string line(const member::Say& e) {
  return "Say: " + e.text;
}
std::string line(const member::Progress& e) {
  return "Progress " + line(e.waiting);
}

bool is_beat(const std::string& text_of) {
  return text_of.find("Ping ") != std::string::npos || text_of.find("Pong ") != std::string::npos ||
         text_of.find("> Tick") != std::string::npos;
}

template <class Variant>
std::string line_of(const Variant& variant) {
  return std::visit([](const auto& alternative) { return line(alternative); }, variant);
}

}  // namespace

std::string to_line(const Fence& fence) {
  return number(fence.epoch) + "/" + number(fence.generation.value);
}
std::string to_line(const AgentMessage& message) {
  return line_of(message);
}
std::string to_line(const CoordinatorMessage& message) {
  return line_of(message);
}
std::string to_line(const Event& event) {
  return line_of(event);
}
std::string to_line(const Effect& effect) {
  return line_of(effect);
}
std::string to_line(const member::Event& event) {
  return line_of(event);
}
std::string to_line(const member::Effect& effect) {
  return line_of(effect);
}
std::string to_line(const Exit& exit) {
  switch (exit.how) {
    case Exit::How::over:
      return "the agent ends: " + text(exit.over);
    case Exit::How::no_round:
      return "the agent ends: no round, " + text(exit.no_round.reason);
    case Exit::How::stopped:
      return "the agent ends: stopped";
  }
  return "?";
}

void Transcript::line(const std::string& text_of) {
  if (!on_) return;
  std::array<char, 32> stamp;
  const Duration since = agenda_.now() - TimePoint(std::chrono::hours(1));
  std::snprintf(stamp.data(), stamp.size(), "%9.4f  ",
                std::chrono::duration<double>(since).count());
  tail_.push_back(stamp.data() + text_of);
  for (const char c : tail_.back()) {
    fingerprint_ = (fingerprint_ ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  // Beats that tell nothing new would push out what matters.
  if (is_beat(text_of)) tail_.pop_back();
  if (tail_.size() > kTailMax) tail_.pop_front();
}

std::string Transcript::tail() const {
  std::string all;
  for (const std::string& one : tail_) all += one + "\n";
  return all;
}

}  // namespace distrun::rendezvous::sim
