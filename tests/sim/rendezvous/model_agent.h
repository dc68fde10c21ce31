// ModelAgent: as much of an agent as the rendezvous can tell apart.  It asks for places, runs a
// group of workers in each, which succeeds, fails, hangs or is stopped, and ends with the job.
#pragma once

#include "rendezvous/core/member.h"
#include "tests/sim/random.h"
#include "tests/sim/rendezvous/plan.h"

#include <functional>
#include <optional>
#include <string>

namespace distrun::rendezvous::sim {

// How an agent ended.
struct Exit {
  enum class How { over, no_round, stopped };
  How how = How::stopped;
  Over over;                 // how == over
  member::NoRound no_round;  // how == no_round
};

class ModelAgent {
 public:
  struct Surroundings {
    std::function<void(member::Event)> tell;                     // the member
    std::function<void(Duration, std::function<void()>)> later;  // never after the agent's death
    std::function<std::uint16_t()> fresh_store;                  // its port
    std::function<void(const Welcome&)> group_starts;
    std::function<void(const Fence&, const Outcome&)> group_ends;
    std::function<void(const Failure&)> fails_first;
    std::function<void(const Exit&)> ends;
    std::function<bool()> calm_now;  // the world's faults are over: groups succeed
  };
  ModelAgent(const Plan& plan, std::string host, distrun::sim::Random& random,
             Surroundings surroundings);

  void begin();
  void on(const member::Placed& placed);
  void on(const member::Disbanded& disbanded);
  void on(const member::JobOver& over);
  void on(const member::NoRound& none);
  void stop();  // the operator
  void fail_now();
  void infected();  // a worker elsewhere in the round failed, and ours fails of it

  bool joining() const { return phase_ == Phase::joining; }
  bool group_alive() const { return phase_ == Phase::working || phase_ == Phase::draining; }
  bool working() const { return phase_ == Phase::working; }
  bool stopping() const { return kept_.has_value(); }
  bool done() const { return phase_ == Phase::done; }
  const std::optional<Welcome>& place() const { return place_; }

 private:
  enum class Phase { idle, joining, working, draining, done };
  void fail(bool at_start);
  void drain(Outcome outcome);
  void ask(std::optional<Outcome> outcome);
  void finish(Exit exit);
  void end();

  const Plan& plan_;
  std::string host_;
  distrun::sim::Random& random_;
  Surroundings around_;
  Phase phase_ = Phase::idle;
  std::optional<Welcome> place_;
  std::optional<Exit> kept_;  // once the group has stopped
  int group_ = 0;
};

}  // namespace distrun::rendezvous::sim
