#include "tests/sim/rendezvous/crowd.h"

#include <algorithm>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::between;
using distrun::sim::millis;

namespace {

Plan plan_of(const CrowdPlan& crowd) {
  Plan plan;
  plan.daemon = true;
  plan.terms.min_nodes = crowd.min_nodes;
  plan.terms.max_nodes = crowd.nodes;
  plan.terms.max_restarts = crowd.max_restarts;
  plan.terms.command = "train.py";
  plan.weather = crowd.weather;
  plan.work = std::chrono::hours(1000);
  plan.start_timeout = 900s;
  plan.patience = 600s;
  plan.takeover_patience = 30s;
  return plan;
}

}  // namespace

Crowd::Crowd(const CrowdPlan& crowd)
    : random_(crowd.seed),
      plan_(plan_of(crowd)),
      network_(agenda_, random_, plan_.weather),
      transcript_(agenda_, false),
      referee_(stage_, coverage_),
      stage_{agenda_, random_, network_, transcript_, referee_, plan_, crowd.careful, false},
      daemon_(stage_, network_.add_host("10.1.0.1")),
      endpoint_{network_.address(daemon_.host()), kPort} {
  for (int i = 0; i < crowd.nodes; ++i) {
    network_.add_host("10.0." + std::to_string(i / 250) + "." + std::to_string(i % 250));
  }
  daemon_.start();
}

void Crowd::start() {
  for (HostId host = 1; host < network_.hosts(); ++host) {
    NodePlan plan;
    plan.host = host;
    agenda_.after(distrun::sim::micros(random_, 0, 1'000'000), [this, plan] { start_node(plan); });
  }
}

void Crowd::start_node(const NodePlan& plan) {
  const NodeId id = "n" + std::to_string(plan.host) + "." + std::to_string(next_id_++);
  nodes_.push_back(std::make_unique<Node>(stage_, plan, id, endpoint_));
  referee_.add_node(*nodes_.back());
  nodes_.back()->begin();
}

void Crowd::run_for(Duration duration) {
  const TimePoint end = agenda_.now() + duration;
  while (!agenda_.empty() && agenda_.next() <= end) agenda_.step();
}

bool Crowd::run_until_working(Duration limit) {
  const TimePoint end = agenda_.now() + limit;
  for (long steps = 0; !agenda_.empty() && agenda_.next() <= end; ++steps) {
    agenda_.step();
    if (steps % 1024 == 0 && all_working()) return true;
  }
  return all_working();
}

bool Crowd::all_working() const {
  const Rendezvous* found = job();
  if (!found || found->phase() != RoundPhase::sealed) return false;
  return std::all_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
    return !node->alive() ||
           (node->agent().working() && node->member().round() == found->record().last);
  });
}

void Crowd::kill_every(int nth) {
  for (std::size_t i = 0; i < nodes_.size(); i += static_cast<std::size_t>(nth)) {
    network_.kill(nodes_[i]->process());
  }
}

Node& Crowd::any_working() {
  for (;;) {
    Node& node = *nodes_[random_() % nodes_.size()];
    if (node.alive() && !network_.paused(node.process())) return node;
  }
}

// In eight: five failures of workers, one loss of a node that comes back, a short pause of an
// agent, a restart of the daemon.
void Crowd::fault(int number) {
  Node& node = any_working();
  switch (number % 8) {
    case 3: {
      network_.kill(node.process());
      agenda_.after(2s, [this, plan = node.plan()] { start_node(plan); });
      return;
    }
    case 5:
      network_.pause(node.process());
      agenda_.after(millis(random_, 100, 1500),
                    [this, process = node.process()] { network_.resume(process); });
      return;
    case 7:
      daemon_.kill();
      agenda_.after(500ms, [this] { daemon_.start(); });
      return;
    default:
      node.fail_now();
      return;
  }
}

const Rendezvous* Crowd::job() const {
  return daemon_.seat() ? daemon_.seat()->core().find(kJob) : nullptr;
}

int Crowd::rounds() const {
  return job() ? job()->record().last.generation.value + 1 : 0;
}

bool Crowd::over() const {
  return job() && job()->record().over.has_value();
}

std::string Crowd::ended() const {
  return over() ? job()->record().over->why : "";
}

int Crowd::living() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->alive(); }));
}

int Crowd::losses() const {
  const auto noted = coverage_.situations.find("loss is noted");
  return noted == coverage_.situations.end() ? 0 : noted->second;
}

}  // namespace distrun::rendezvous::sim
