// A Rendezvous with scripted agents around it: they answer every ping unless told to be silent, and
// keep what they were sent.
#pragma once

#include "rendezvous/core/rendezvous.h"

#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace distrun::rendezvous {

inline Terms terms(int min_nodes, int max_nodes, int max_restarts = 0) {
  Terms terms;
  terms.min_nodes = min_nodes;
  terms.max_nodes = max_nodes;
  terms.max_restarts = max_restarts;
  terms.command = "train.py";
  return terms;
}

class Hall {
 public:
  static constexpr const char* kFounder = "host1";  // of a new job, whoever joins first

  explicit Hall(Terms terms, Authority authority = {})
      : terms_(std::move(terms)), core_(a_join(kFounder), std::move(authority)) {}
  Hall(const Record& record, Authority authority)
      : terms_(record.terms), core_(record, std::move(authority), TimePoint{}) {}

  Join a_join(const std::string& host) const {
    Join join;
    join.job = "job";
    join.node = host + ".1";
    join.host = host;
    join.address = "10.0.0." + std::to_string(host.back() - '0');
    join.store_port = 1000;
    join.takeover_port = 2000;
    join.terms = terms_;
    return join;
  }
  SessionId join(const std::string& host) { return join(a_join(host)); }
  SessionId join(const Join& join) {
    const SessionId session(++last_session_);
    feed(Received{session, join});
    return session;
  }
  void say(SessionId session, AgentMessage message) { feed(Received{session, std::move(message)}); }
  void ended(SessionId session, RoundResult result) {
    Outcome outcome;
    outcome.round = core_.record().last;
    outcome.result = result;
    say(session, Ended{outcome, 1001});
  }
  void failed(SessionId session, int rank, bool at_start = false) {
    Failure failure;
    failure.host = "host" + std::to_string(rank);
    failure.rank = Rank(rank);
    failure.pid = 7;
    failure.status = "exited with status 13";
    failure.exit_code = 13;
    say(session, Failed{core_.record().last, failure});
    Outcome outcome;
    outcome.round = core_.record().last;
    outcome.result = RoundResult::failed;
    outcome.failure = failure;
    outcome.failed_at_start = at_start;
    outcome.report = "report of rank " + std::to_string(rank);
    say(session, Ended{outcome, 1001});
  }
  void close(SessionId session) { feed(Closed{session}); }
  void silence(SessionId session) { silent_.insert(session); }

  void pass(Duration time) {
    const TimePoint until = now_ + time;
    while (core_.next_deadline() && *core_.next_deadline() <= until) {
      now_ = std::max(now_, *core_.next_deadline());
      feed(Tick{});
    }
    now_ = until;
  }
  // Nothing runs meanwhile, as if the coordinator had been stopped.
  void sleep(Duration time) {
    now_ += time;
    feed(Tick{});
  }

  void feed(const Event& event) {
    std::vector<SessionId> pings;
    std::vector<std::uint64_t> numbers;
    for (Effect& effect : core_.handle(event, now_)) {
      if (const auto* send = std::get_if<Send>(&effect)) {
        if (const auto* ping = std::get_if<Ping>(&send->message)) {
          pings.push_back(send->session);
          numbers.push_back(ping->number);
        } else {
          got_[send->session].push_back(send->message);
          ++messages_;
        }
      } else if (const auto* drop = std::get_if<Drop>(&effect)) {
        dropped_.insert(drop->session);
      } else if (const auto* save = std::get_if<Save>(&effect)) {
        saved_ = *save->record;
      } else if (const auto* note = std::get_if<Note>(&effect)) {
        notes_.push_back(note->happening);
      }
    }
    for (std::size_t i = 0; i < pings.size(); ++i) {
      if (silent_.count(pings[i]) == 0) feed(Received{pings[i], Pong{numbers[i]}});
    }
  }

  // The last message of that kind to this agent; nullopt: none.
  template <class Message>
  std::optional<Message> last(SessionId session) const {
    const auto found = got_.find(session);
    if (found == got_.end()) return std::nullopt;
    for (auto i = found->second.rbegin(); i != found->second.rend(); ++i) {
      if (const auto* message = std::get_if<Message>(&*i)) return *message;
    }
    return std::nullopt;
  }
  bool dropped(SessionId session) const { return dropped_.count(session) != 0; }
  RoundPhase phase() const { return core_.phase(); }
  int generation() const { return core_.record().last.generation.value; }
  int rank(SessionId session) const {
    const auto welcome = last<Welcome>(session);
    return welcome && welcome->round == core_.record().last ? welcome->node_rank.value : -1;
  }
  const std::optional<Record>& saved() const { return saved_; }
  RendezvousState state() const { return core_.state(); }
  std::string notes(HappeningKind kind) const {
    std::string text;
    for (const Happening& happening : notes_) {
      if (happening.kind == kind) text += happening.text + "\n";
    }
    return text;
  }
  long messages() const { return messages_; }

 private:
  Terms terms_;
  Rendezvous core_;
  TimePoint now_{};
  int last_session_ = 0;
  std::map<SessionId, std::vector<CoordinatorMessage>> got_;
  std::set<SessionId> dropped_;
  std::set<SessionId> silent_;
  std::optional<Record> saved_;
  std::vector<Happening> notes_;
  long messages_ = 0;
};

}  // namespace distrun::rendezvous
