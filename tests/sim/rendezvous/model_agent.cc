#include "tests/sim/rendezvous/model_agent.h"

#include <utility>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::between;
using distrun::sim::chance;
using distrun::sim::micros;
using distrun::sim::millis;

ModelAgent::ModelAgent(const Plan& plan, std::string host, distrun::sim::Random& random,
                       Surroundings surroundings)
    : plan_(plan), host_(std::move(host)), random_(random), around_(std::move(surroundings)) {}

void ModelAgent::begin() {
  if (phase_ == Phase::idle) ask(std::nullopt);
}

void ModelAgent::on(const member::Placed& placed) {
  place_ = placed.welcome;
  phase_ = Phase::working;
  around_.group_starts(*place_);
  const int group = ++group_;
  const auto later = [this, group](Duration wait, std::function<void()> action) {
    around_.later(wait, [this, group, action = std::move(action)] {
      if (group == group_ && phase_ == Phase::working) action();
    });
  };
  if (!around_.calm_now()) {
    if (chance(random_, plan_.fails_at_start)) {
      return later(micros(random_, 500, 900'000), [this] { fail(true); });
    }
    if (chance(random_, plan_.worker_fails)) {
      later(millis(random_, 1000, 20'000), [this] { fail(false); });
    }
    if (chance(random_, plan_.hangs)) return;
  }
  const Duration skew = plan_.skewed_exit ? millis(random_, 0, 8000) : micros(random_, 0, 20'000);
  later(plan_.work + skew, [this] {
    Outcome outcome;
    outcome.round = place_->round;
    outcome.result = RoundResult::succeeded;
    drain(outcome);
  });
}

void ModelAgent::on(const member::Disbanded& disbanded) {
  if (phase_ != Phase::working || disbanded.round != place_->round) return;
  Outcome outcome;
  outcome.round = place_->round;
  drain(outcome);
}

void ModelAgent::on(const member::JobOver& over) {
  Exit exit;
  exit.how = Exit::How::over;
  exit.over = over.over;
  finish(exit);
}

void ModelAgent::on(const member::NoRound& none) {
  Exit exit;
  exit.how = Exit::How::no_round;
  exit.no_round = none;
  finish(exit);
}

void ModelAgent::stop() {
  if (phase_ != Phase::done && !kept_) finish(Exit{});
}

void ModelAgent::fail_now() {
  if (phase_ == Phase::working) fail(false);
}

void ModelAgent::infected() {
  if (phase_ != Phase::working || !chance(random_, plan_.cascade)) return;
  around_.later(millis(random_, 1, 500), [this, group = group_] {
    if (group == group_ && phase_ == Phase::working) fail(false);
  });
}

void ModelAgent::fail(bool at_start) {
  Failure failure;
  failure.host = host_;
  failure.local_rank = LocalRank{0};
  failure.rank = place_->base_rank;
  failure.pid = between(random_, 100, 30'000);
  failure.exit_code = between(random_, 1, 120);
  failure.status = "exited with status " + std::to_string(failure.exit_code);
  around_.fails_first(failure);
  around_.tell(member::FailedHere{failure});
  if (phase_ != Phase::working) return;  // it was told something at once
  Outcome outcome;
  outcome.round = place_->round;
  outcome.result = RoundResult::failed;
  outcome.failure = failure;
  outcome.failed_at_start = at_start;
  outcome.remains = chance(random_, plan_.remains);
  outcome.report = "the last words of " + std::to_string(failure.pid) + " on " + host_;
  drain(outcome);
}

void ModelAgent::drain(Outcome outcome) {
  phase_ = Phase::draining;
  const bool success = outcome.result == RoundResult::succeeded;
  const Duration wait = success ? Duration{}
                        : chance(random_, plan_.slow_stop)
                            ? millis(random_, 0, static_cast<int>(plan_.grace / 1ms))
                            : micros(random_, 500, 50'000);
  around_.later(wait, [this, outcome = std::move(outcome)] {
    around_.group_ends(place_->round, outcome);
    if (kept_) {
      end();
    } else {
      ask(outcome);
    }
  });
}

void ModelAgent::ask(std::optional<Outcome> outcome) {
  phase_ = Phase::joining;
  around_.tell(member::Asked{std::move(outcome), around_.fresh_store()});
}

// At once, or when the group has stopped.
void ModelAgent::finish(Exit exit) {
  if (phase_ == Phase::done || kept_) return;
  kept_ = std::move(exit);
  if (phase_ == Phase::draining) return;
  if (phase_ == Phase::working) {
    Outcome outcome;
    outcome.round = place_->round;
    return drain(outcome);
  }
  end();
}

void ModelAgent::end() {
  phase_ = Phase::done;
  if (kept_->how == Exit::How::stopped) around_.tell(member::Left{"the operator stopped it"});
  around_.ends(*kept_);
}

}  // namespace distrun::rendezvous::sim
