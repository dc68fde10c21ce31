// One Member, the time, and its effects as lines of text: what a test reads and writes.
#pragma once

#include "rendezvous/core/member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

inline std::string shown(const Contact& contact) {
  return contact.address + ":" + std::to_string(contact.port);
}
inline std::string shown(const Fence& round) {
  return std::to_string(round.epoch) + "/" + std::to_string(round.generation.value);
}
inline std::string shown(const AgentMessage& message) {
  struct Show {
    std::string operator()(const Join& join) const {
      std::string text = "join from " + join.address;
      if (join.hosts) text += ", hosts";
      if (!join.held) return text;
      text +=
          ", held " + shown(join.held->round) + " rank " + std::to_string(join.held->rank.value);
      if (!join.held->outcome) return text + " running";
      return text + (join.held->outcome->failure
                         ? " failed " + duration_text(join.held->outcome->failure->age) + " ago"
                         : " ended");
    }
    std::string operator()(const Failed& failed) const {
      return "failed " + shown(failed.round) + ", " + duration_text(failed.failure.age) + " ago";
    }
    std::string operator()(const Ended& ended) const {
      return "ended " + shown(ended.outcome.round) + ", store " + std::to_string(ended.store_port);
    }
    std::string operator()(const Pong& pong) const { return "pong " + std::to_string(pong.number); }
    std::string operator()(const Leave& leave) const { return "leave: " + leave.why; }
  };
  return std::visit(Show{}, message);
}

// Words for people are kept apart: what is said is tested where it matters.
class MemberFixture {
 public:
  explicit MemberFixture(MemberLimits limits) : member(std::move(limits)) {}

  static MemberLimits limits(const NodeId& node = "b") {
    MemberLimits made;
    made.self.job = "job";
    made.self.node = node;
    made.self.host = "host-" + node;
    made.endpoint = {"head", 29400};
    return made;
  }
  static MemberLimits heir(const NodeId& node) {  // of a job that agents host
    MemberLimits made = limits(node);
    made.takeover = true;
    made.self.takeover_port = 7000;
    return made;
  }

  Lines tell(const member::Event& event) {
    Lines lines;
    for (const member::Effect& effect : member.handle(event, now)) {
      std::visit([&](const auto& e) { show(lines, e); }, effect);
    }
    EXPECT_EQ(member.broken_invariant(), "");
    const auto next = member.next_deadline();
    EXPECT_TRUE(!next || *next > now) << "a deadline that has passed";
    return lines;
  }
  // Ticks at each deadline on the way.
  Lines wait(Duration time) {
    Lines lines;
    const TimePoint until = now + time;
    for (auto next = member.next_deadline(); next && *next <= until;
         next = member.next_deadline()) {
      now = *next;
      for (std::string& line : tell(member::Tick{})) lines.push_back(std::move(line));
    }
    now = until;
    return lines;
  }

  Lines ask(std::uint16_t store = 5000) { return tell(member::Asked{{}, store}); }
  Lines ended(Fence round, std::optional<Failure> failure = {}) {
    Outcome outcome;
    outcome.round = round;
    if (failure) {
      outcome.result = RoundResult::failed;
      outcome.failure = failure;
    }
    return tell(member::Asked{outcome, 5001});
  }
  Lines connected(int dial) { return tell(member::Connected{dial, "10.0.0.2"}); }
  Lines refused_by_host(int dial) { return no_answer(dial, member::NoAnswer::refused); }
  Lines no_answer(int dial, member::NoAnswer reason) {
    return tell(member::NotConnected{dial, reason, "dial " + std::to_string(dial) + ": no"});
  }
  Lines closed(int dial) { return tell(member::Closed{dial, "closed"}); }
  Lines receive(int dial, CoordinatorMessage message) {
    return tell(member::Received{dial, std::move(message)});
  }
  Lines ping(int dial, std::uint64_t number, Fence last, bool quorum = true) {
    return receive(dial, Ping{number, last, quorum, {}});
  }
  Lines refuse(int dial, RefusalCode code, const Contact& contact = {}) {
    return receive(dial, Refused{code, "because", contact.address, contact.port});
  }

  // A place in a round.  With `nodes` of a job that agents host: "a" hosts it at the endpoint.
  static Welcome welcome(Fence round, int rank = 1, const std::vector<NodeId>& nodes = {}) {
    Welcome made;
    made.round = round;
    made.node_rank = NodeRank(rank);
    made.node_count = nodes.empty() ? 2 : static_cast<int>(nodes.size());
    if (nodes.empty()) return made;
    made.coordinator = "a";
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      made.successors.push_back(
          {nodes[i], "host-" + nodes[i], "addr-" + nodes[i], 7000, NodeRank(static_cast<int>(i))});
    }
    return made;
  }
  // As far as a round whose workers run.
  void join_round(const Welcome& place) {
    ask();
    connected(1);
    receive(1, place);
    ping(1, 1, place.round);
    said.clear();
  }

  Member member;
  TimePoint now{std::chrono::hours(1)};
  Lines said;
  std::optional<member::NoRound> no_round;
  std::optional<member::Host> hosted;

 private:
  void show(Lines& lines, const member::Dial& e) {
    lines.push_back("dial " + std::to_string(e.dial) + " " + shown(e.contact));
  }
  void show(Lines& lines, const member::Send& e) {
    lines.push_back("to " + std::to_string(e.dial) + ": " + shown(e.message));
  }
  void show(Lines& lines, const member::HangUp& e) {
    lines.push_back("hang up " + std::to_string(e.dial));
  }
  void show(Lines& lines, const member::Host& e) {
    hosted = e;
    lines.push_back("host as successor " + std::to_string(e.successor));
  }
  void show(Lines& lines, const member::StopHosting&) { lines.push_back("stop hosting"); }
  void show(Lines& lines, const member::Direct& e) {
    lines.push_back(e.answer.code == RefusalCode::not_yet
                        ? "direct: not yet"
                        : "direct to " + shown(Contact{e.answer.address, e.answer.port}));
  }
  void show(Lines& lines, const member::Placed& e) {
    lines.push_back("placed in " + shown(e.welcome.round));
  }
  void show(Lines& lines, const member::Disbanded& e) {
    lines.push_back("disbanded " + shown(e.round));
  }
  void show(Lines& lines, const member::JobOver& e) { lines.push_back("over: " + e.over.why); }
  void show(Lines& lines, const member::NoRound& e) {
    no_round = e;
    switch (e.reason) {
      case member::GaveUp::timed_out:
        return lines.push_back("no round: timed out");
      case member::GaveUp::closed:
        return lines.push_back("no round: closed");
      case member::GaveUp::refused:
        return lines.push_back("no round: refused");
    }
  }
  void show(Lines&, const member::Say& e) { said.push_back(e.text); }
  void show(Lines& lines, const member::Progress& e) {
    lines.push_back("waiting: " + std::to_string(e.waiting.present) + " present");
  }
};

inline Fence round_of(int epoch, int generation) {
  return {epoch, Generation(generation)};
}

}  // namespace distrun::rendezvous
