#include "tests/sim/rendezvous/world.h"

#include <algorithm>
#include <set>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::between;
using distrun::sim::chance;
using distrun::sim::millis;

namespace {

constexpr long kStepsMax = 3'000'000;
constexpr std::string_view kRunaway = "the world runs away";
constexpr Duration kDaemonAwayMax = 10s;

std::string address_of(HostId host) {
  return "10.0.0." + std::to_string(host + 1);
}

}  // namespace

// ---- other processes ---------------------------------------------------------------------------

void Daemon::start() {
  const ProcessId process = stage_.network.start(host_, *this);
  stage_.network.listen(process, kPort);
  seat_ = std::make_unique<Seat>(stage_, process, "distrund", CoordinatorLimits{}, Authority{},
                                 &journal_);
  const auto ours = journal_.find(kJob);
  if (ours == journal_.end() || !ours->second.over) stage_.referee.end_was_not_saved();
  for (const auto& [job, record] : journal_) seat_->restore(record);
}

void Daemon::kill() {
  if (!seat_) return;
  stage_.network.kill(seat_->process());
  seat_.reset();
}

Stranger::Stranger(Stage& stage, HostId host, const Contact& endpoint, int kind)
    : stage_(stage), kind_(kind) {
  const ProcessId process = stage_.network.start(host, *this);
  stage_.network.dial(process, 1, endpoint, 2s);
  stage_.network.wake(process, stage_.agenda.now() + 20s,
                      [this, process] { stage_.network.kill(process); });
}

void Stranger::connected(int, SocketId socket) {
  Join join;
  join.job = kJob;
  join.node = "stranger";
  join.host = "strange";
  join.address = "10.9.9.9";
  join.store_port = stage_.network.free_port();
  join.terms = stage_.plan.terms;
  if (join.terms.fixed_ranks) join.node_rank = NodeRank{0};
  switch (kind_ % 6) {
    case 0:  // says nothing
      return;
    case 1:
      return stage_.network.send(socket, Garbage{});
    case 2:  // not the first thing to say
      return stage_.network.send(socket, AgentMessage{Pong{17}});
    case 3:
      join.version = 99;
      break;
    case 4:
      join.token = "guessed";
      break;
    default:
      join.terms.command = "another.py";
      break;
  }
  stage_.network.send(socket, AgentMessage{join});
  Ended ended;
  ended.store_port = stage_.network.free_port();
  stage_.network.send(socket, AgentMessage{ended});
}

// ---- the world ---------------------------------------------------------------------------------

World::World(std::uint64_t seed, Coverage& coverage, bool tell)
    : random_(seed),
      plan_(draw_plan(random_)),
      network_(agenda_, random_, plan_.weather),
      transcript_(agenda_, tell),
      coverage_(coverage),
      referee_(stage_, coverage),
      stage_{agenda_, random_, network_, transcript_, referee_, plan_, true, false} {}

std::string World::run() {
  hosts_ = static_cast<int>(plan_.nodes.size());
  for (HostId host = 0; host < hosts_; ++host) network_.add_host(address_of(host));
  if (plan_.daemon) {
    const HostId host = chance(random_, 0.3) ? 0 : network_.add_host("10.1.0.1");
    daemon_ = std::make_unique<Daemon>(stage_, host);
    daemon_->start();
    endpoint_ = {network_.address(host), kPort};
  } else {
    endpoint_ = {network_.address(0), kPort};
  }
  const TimePoint start = agenda_.now();
  for (const NodePlan& node : plan_.nodes) {
    agenda_.after(node.starts, [this, node] { start_node(node); });
  }
  for (const Fault& fault : plan_.faults) {
    agenda_.after(fault.at, [this, fault] { strike(fault); });
  }
  step_until(start + plan_.faults_end);
  if (!referee_.broken().empty()) return referee_.broken();
  end_faults();
  step_until(start + plan_.faults_end + settling_bound(plan_));
  if (!referee_.broken().empty()) return referee_.broken();
  check_settled();
  for (const auto& node : nodes_) {
    if (node->alive() && !node->exit()) node->stop();
  }
  step_until(agenda_.now() + plan_.grace + 30s);
  check_all_gone();
  return referee_.broken();
}

void World::step_until(TimePoint end) {
  while (referee_.broken().empty() && !agenda_.empty() && agenda_.next() <= end) {
    agenda_.step();
    referee_.require(++steps_ < kStepsMax, kRunaway);
    if (faults_over_ && (steps_ & 255) == 0 && all_gone()) return;
  }
}

std::string World::story() const {
  return transcript_.tail();
}

// ---- nodes -------------------------------------------------------------------------------------

void World::start_node(NodePlan plan) {
  if (!network_.is_up(plan.host)) return;
  const std::string id = "n" + std::to_string(plan.host) + "." + std::to_string(next_id_++);
  nodes_.push_back(std::make_unique<Node>(stage_, plan, id, endpoint_));
  referee_.add_node(*nodes_.back());
  if (chance(random_, 0.01)) nodes_.back()->stop();  // before it began
  nodes_.back()->begin();
}

void World::restart_node_on(HostId host, Duration after) {
  const auto old = std::find_if(nodes_.rbegin(), nodes_.rend(),
                                [host](const auto& node) { return node->host() == host; });
  if (old == nodes_.rend()) return;
  agenda_.after(after, [this, plan = (*old)->plan()] {
    const bool there = std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& node) {
      return node->host() == plan.host && node->alive();
    });
    if (!there && !faults_over_) start_node(plan);
  });
}

Node* World::living_node(int number) {
  std::vector<Node*> living;
  for (const auto& node : nodes_) {
    if (node->alive() && !node->exit()) living.push_back(node.get());
  }
  return living.empty() ? nullptr : living[static_cast<std::size_t>(number) % living.size()];
}

Node* World::hosting_node() {
  for (const auto& node : nodes_) {
    if (node->alive() && !node->exit() && node->seat()) return node.get();
  }
  return nullptr;
}

void World::kill_node(Node& node) {
  network_.kill(node.process());
  node.died();
  referee_.dies(node);
}

void World::crash_host(HostId host) {
  if (!network_.is_up(host)) return;
  network_.crash(host);
  referee_.trouble_begins(host);
  for (const auto& node : nodes_) {
    if (node->host() != host) continue;
    node->died();
    referee_.dies(*node);
  }
  if (daemon_ && daemon_->host() == host) daemon_->kill();
}

void World::boot_host(HostId host) {
  if (network_.is_up(host)) return;
  network_.boot(host);
  referee_.trouble_ends(host);
  if (daemon_ && daemon_->host() == host && !daemon_->alive()) daemon_->start();
}

// ---- faults ------------------------------------------------------------------------------------

void World::pause(ProcessId process, HostId host, Duration lasts) {
  if (network_.paused(process)) return;
  network_.pause(process);
  referee_.trouble_begins(host);
  agenda_.after(lasts, [this, process, host] {
    if (!network_.paused(process)) return;
    referee_.trouble_ends(host);
    network_.resume(process);
  });
}

void World::cut(HostId from, HostId to, Duration lasts) {
  if (from == to || !network_.open(from, to)) return;
  network_.cut(from, to);
  referee_.trouble_begins(from);
  referee_.trouble_begins(to);
  agenda_.after(lasts, [this, from, to] {
    if (network_.open(from, to)) return;
    network_.heal(from, to);
    referee_.trouble_ends(from);
    referee_.trouble_ends(to);
  });
}

void World::strike(const Fault& fault) {
  if (transcript_.on()) transcript_.line("! " + std::string(to_string(fault.kind)));
  const int hosts = network_.hosts();
  const HostId host = fault.target % hosts;
  Node* node = living_node(fault.target);
  switch (fault.kind) {
    case FaultKind::kill_agent:
      if (!node) return;
      kill_node(*node);
      if (fault.returns) restart_node_on(node->host(), fault.lasts);
      break;
    case FaultKind::crash_host:
      crash_host(host);
      if (fault.returns) {
        agenda_.after(fault.lasts, [this, host] { boot_host(host); });
        restart_node_on(host, fault.lasts + 1s);
      }
      break;
    case FaultKind::pause_agent:
      if (!node) return;
      pause(node->process(), node->host(), fault.lasts);
      break;
    case FaultKind::cut_one_way:
      cut(host, fault.other % hosts, fault.lasts);
      break;
    case FaultKind::cut_both_ways:
      cut(host, fault.other % hosts, fault.lasts);
      cut(fault.other % hosts, host, fault.lasts);
      break;
    case FaultKind::isolate_host:
      for (HostId other = 0; other < hosts; ++other) {
        cut(host, other, fault.lasts);
        cut(other, host, fault.lasts);
      }
      break;
    case FaultKind::partition:
      for (HostId a = 0; a < hosts; ++a) {
        for (HostId b = 0; b < hosts; ++b) {
          if (((fault.target >> (a % 20)) & 1) != ((fault.target >> (b % 20)) & 1)) {
            cut(a, b, fault.lasts);
          }
        }
      }
      break;
    case FaultKind::storm:
      network_.set_weather({20ms, 300ms, 0.2});
      for (HostId each = 0; each < hosts; ++each) referee_.trouble_begins(each);
      agenda_.after(fault.lasts, [this, hosts] {
        network_.set_weather(plan_.weather);
        for (HostId each = 0; each < hosts; ++each) referee_.trouble_ends(each);
      });
      break;
    case FaultKind::kill_coordinator:
      if (daemon_) {
        if (!daemon_->alive()) return;
        referee_.trouble_begins(daemon_->host());
        const auto back = [this] {
          referee_.trouble_ends(daemon_->host());
          if (!daemon_->alive() && network_.is_up(daemon_->host())) daemon_->start();
        };
        const Duration away = std::min(fault.lasts, kDaemonAwayMax);
        if (chance(random_, 0.5)) {
          daemon_->seat()->die_soon([this] { agenda_.after(0s, [this] { daemon_->kill(); }); });
        } else {
          daemon_->kill();
        }
        agenda_.after(away, back);
      } else if (Node* hosting = hosting_node()) {
        kill_node(*hosting);
        if (fault.returns) restart_node_on(hosting->host(), fault.lasts);
      }
      break;
    case FaultKind::crash_coordinator: {
      Node* hosting = hosting_node();
      if (!daemon_ && !hosting) return;
      const HostId target = daemon_ ? daemon_->host() : hosting->host();
      crash_host(target);
      if (daemon_ || fault.returns) {
        const Duration away = std::min(fault.lasts, kDaemonAwayMax);
        agenda_.after(away, [this, target] { boot_host(target); });
        restart_node_on(target, away + 1s);
      }
      break;
    }
    case FaultKind::pause_coordinator:
      if (daemon_) {
        if (daemon_->alive()) pause(daemon_->seat()->process(), daemon_->host(), fault.lasts);
      } else if (Node* hosting = hosting_node()) {
        pause(hosting->process(), hosting->host(), fault.lasts);
      }
      break;
    case FaultKind::leave:
      if (node && !network_.paused(node->process())) node->stop();
      if (node && fault.returns) restart_node_on(node->host(), fault.lasts);
      break;
    case FaultKind::newcomer: {
      if (plan_.terms.fixed_ranks) return;
      NodePlan late;
      late.host = network_.add_host("10.0.1." + std::to_string(hosts));
      late.nproc = 2;
      start_node(late);
      break;
    }
    case FaultKind::stranger:
      if (!network_.is_up(host)) return;
      strangers_.push_back(std::make_unique<Stranger>(stage_, host, endpoint_, fault.other));
      break;
    case FaultKind::break_at_seal: {
      Node* hosting = hosting_node();
      Seat* seat = daemon_ ? daemon_->seat() : hosting ? hosting->seat() : nullptr;
      if (!seat) return;
      seat->break_at_seal(fault.returns ? 0.5 : 0.9);
      break;
    }
  }
  referee_.seen("fault: " + std::string(to_string(fault.kind)));
}

void World::end_faults() {
  if (transcript_.on()) transcript_.line("! no further faults");
  faults_over_ = true;
  stage_.calm_now = true;
  network_.heal_all();
  network_.set_weather(plan_.weather);
  for (ProcessId process = 0; process < network_.processes(); ++process) {
    if (network_.paused(process)) network_.resume(process);
  }
  if (daemon_) {
    boot_host(daemon_->host());
    if (!daemon_->alive()) daemon_->start();
    daemon_->seat()->break_at_seal(0);
  }
  for (const auto& node : nodes_) {
    if (node->seat()) node->seat()->break_at_seal(0);
  }
}

// ---- what must have become of it ---------------------------------------------------------------

bool World::all_gone() const {
  return std::none_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node->alive(); });
}

void World::check_settled() {
  std::set<Fence> running;
  bool whole = true;
  int living = 0;
  for (const auto& node : nodes_) {
    if (!node->alive() || node->exit()) continue;
    ++living;
    if (node->agent().group_alive()) {
      running.insert(node->agent().place()->round);
      whole = whole && referee_.runs_on(*node);
    } else {
      referee_.require(node->member().phase() == MemberPhase::attached, Referee::kNobodyLeft);
    }
  }
  if (living == 0 || plan_.rule == TakeoverRule::any) return;
  referee_.require(running.size() == 1 && whole, Referee::kSettles);
  referee_.seen("a job runs on");
}

void World::check_all_gone() {
  referee_.require(all_gone(), Referee::kSettles);
}

}  // namespace distrun::rendezvous::sim
