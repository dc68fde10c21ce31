#include "tests/sim/rendezvous/node.h"

#include "tests/sim/rendezvous/referee.h"
#include "tests/sim/rendezvous/transcript.h"

#include <utility>

namespace distrun::rendezvous::sim {

using namespace std::chrono_literals;
using distrun::sim::micros;
using distrun::sim::millis;

namespace {

// How long an agent that hosts stays for those who do not know the end yet.
constexpr Duration kLinger = 5s;

std::string host_name(HostId host) {
  return "node" + std::to_string(host);
}

}  // namespace

Node::Node(Stage& stage, const NodePlan& plan, const NodeId& id, const Contact& endpoint)
    : stage_(stage),
      plan_(plan),
      id_(id),
      process_(stage.network.start(plan.host, *this)),
      skew_(millis(stage.random, 0, 1'000'000)),
      member_(limits(endpoint)),
      agent_(stage.plan, host_name(plan.host), stage.random, surroundings()) {
  direct_.code = RefusalCode::not_yet;
}

Node::~Node() = default;

MemberLimits Node::limits(const Contact& endpoint) {
  MemberLimits limits;
  limits.self.job = kJob;
  limits.self.node = id_;
  limits.self.host = host_name(plan_.host);
  limits.self.nproc = plan_.nproc;
  limits.self.role = plan_.role;
  limits.self.node_rank = plan_.asked;
  limits.self.terms = stage_.plan.terms;
  limits.endpoint = endpoint;
  limits.takeover = !stage_.plan.daemon && stage_.plan.takeover;
  limits.rule = stage_.plan.rule;
  limits.start_timeout = stage_.plan.start_timeout;
  limits.patience = stage_.plan.patience;
  limits.takeover_patience = stage_.plan.takeover_patience;
  limits.seed = stage_.random();
  if (limits.takeover) {
    takeover_port_ = stage_.network.free_port();
    stage_.network.listen(process_, takeover_port_);
    limits.self.takeover_port = takeover_port_;
  }
  // Who owns the endpoint's address hosts.
  const bool mine = !stage_.plan.daemon && endpoint.address == stage_.network.address(plan_.host);
  if (mine && stage_.network.listen(process_, endpoint.port)) {
    owns_endpoint_ = limits.hosts = limits.self.hosts = true;
    seat_ = std::make_unique<Seat>(stage_, process_, id_ + "*", CoordinatorLimits{.only_job = kJob},
                                   Authority{id_, 0, stage_.plan.rule}, nullptr);
  }
  return limits;
}

ModelAgent::Surroundings Node::surroundings() {
  ModelAgent::Surroundings around;
  around.tell = [this](member::Event event) { feed(std::move(event)); };
  around.later = [this](Duration wait, std::function<void()> action) {
    stage_.network.wake(process_, stage_.agenda.now() + wait, std::move(action));
  };
  around.fresh_store = [this] { return stage_.network.free_port(); };
  around.group_starts = [this](const Welcome& welcome) {
    stage_.referee.group_starts(*this, welcome);
  };
  around.group_ends = [this](const Fence& round, const Outcome& outcome) {
    stage_.referee.group_ends(*this, round, outcome);
  };
  around.fails_first = [this](const Failure& failure) { stage_.referee.fails(*this, failure); };
  around.ends = [this](const Exit& exit) {
    exit_ = exit;
    if (stage_.transcript.on()) stage_.transcript.line(id_ + " = " + to_line(exit));
    stage_.referee.agent_ends(*this, exit);
    linger_until_ = stage_.agenda.now() + kLinger;
    leave_when_others_know();
  };
  around.calm_now = [this] { return stage_.calm_now; };
  return around;
}

void Node::begin() {
  agent_.begin();
}

void Node::leave_when_others_know() {
  if (!alive()) return;
  const bool wait = seat_ && !seat_->empty() && stage_.agenda.now() < linger_until_;
  stage_.network.wake(process_, stage_.agenda.now() + (wait ? 20ms : 1ms), [this, wait] {
    if (wait) return leave_when_others_know();
    stage_.network.kill(process_);
    seat_.reset();
  });
}

// ---- the network -------------------------------------------------------------------------------

void Node::accepted(SocketId socket, std::uint16_t port) {
  if (!seat_) {
    askers_.insert(socket);
    return;
  }
  const bool first_stranger =
      owns_endpoint_ && port == kPort && stage_.network.peer_host(socket) != plan_.host;
  if (first_stranger) seat_->reached_at(stage_.network.address(plan_.host));
  seat_->accepted(socket);
}

void Node::connected(int dial, SocketId socket) {
  dialing_.erase(dial);
  socket_of_[dial] = socket;
  dial_of_[socket] = dial;
  feed(member::Connected{dial, stage_.network.address(plan_.host)});
}

void Node::not_connected(int dial, NoAnswer reason) {
  dialing_.erase(dial);
  feed(member::NotConnected{dial, reason, "simulated"});
}

void Node::received(SocketId socket, const Payload& payload) {
  const auto dial = dial_of_.find(socket);
  if (dial != dial_of_.end()) {
    if (const auto* message = std::get_if<CoordinatorMessage>(&payload)) {
      return feed(member::Received{dial->second, *message});
    }
    const int number = dial->second;  // garbage: the edge closes it
    socket_of_.erase(number);
    dial_of_.erase(dial);
    stage_.network.close(socket);
    return feed(member::Closed{number, "bad bytes"});
  }
  if (askers_.contains(socket)) {
    const auto* message = std::get_if<AgentMessage>(&payload);
    if (message && std::holds_alternative<Join>(*message)) {
      stage_.network.send(socket, CoordinatorMessage{direct_});
    }
    askers_.erase(socket);
    return stage_.network.close(socket);
  }
  if (seat_) seat_->received(socket, payload);
}

void Node::closed(SocketId socket) {
  const auto dial = dial_of_.find(socket);
  if (dial != dial_of_.end()) {
    const int number = dial->second;
    socket_of_.erase(number);
    dial_of_.erase(dial);
    return feed(member::Closed{number, "closed"});
  }
  if (askers_.erase(socket) > 0) return;
  if (seat_) seat_->closed(socket);
}

// ---- the member --------------------------------------------------------------------------------

void Node::feed(member::Event event) {
  inbox_.push_back(std::move(event));
  if (busy_) return;
  busy_ = true;
  while (!inbox_.empty()) {
    const member::Event next = std::move(inbox_.front());
    inbox_.pop_front();
    const MemberPhase before = member_.phase();
    if (stage_.transcript.on()) stage_.transcript.line(id_ + " > " + to_line(next));
    const member::Effects effects = member_.handle(next, stage_.agenda.now() + skew_);
    if (stage_.transcript.on()) {
      for (const member::Effect& effect : effects) {
        stage_.transcript.line(id_ + "     " + to_line(effect));
      }
    }
    if (stage_.careful) stage_.referee.member_handled(*this, before, next, effects);
    for (const member::Effect& effect : effects) {
      std::visit([this](const auto& e) { apply(e); }, effect);
    }
  }
  busy_ = false;
  arm();
}

void Node::arm() {
  const auto deadline = member_.next_deadline();
  if (!deadline || !alive() || (armed_ && *armed_ <= *deadline)) return;
  armed_ = deadline;
  const Duration slack = stage_.careful ? micros(stage_.random, 0, 500) : Duration{};
  stage_.network.wake(process_, *deadline - skew_ + slack, [this, timer = ++timer_] {
    if (timer != timer_) return;
    armed_.reset();
    const auto due = member_.next_deadline();
    if (due && *due <= stage_.agenda.now() + skew_) return feed(member::Tick{});
    arm();
  });
}

void Node::apply(const member::Dial& dial) {
  dialing_.insert(dial.dial);
  stage_.referee.require(std::ssize(dialing_) + std::ssize(socket_of_) <= member::kMaxDials + 1,
                         Referee::kFewDials);
  stage_.network.dial(process_, dial.dial, dial.contact, dial.timeout);
}

void Node::apply(const member::Send& send) {
  const auto socket = socket_of_.find(send.dial);
  if (socket == socket_of_.end()) return;
  AgentMessage message = send.message;
  if (auto* join = std::get_if<Join>(&message)) {
    if (join->address.empty()) join->address = stage_.network.address(plan_.host);
    if (join->store_port == 0) join->store_port = stage_.network.free_port();
  } else if (auto* ended = std::get_if<Ended>(&message)) {
    if (ended->store_port == 0) ended->store_port = stage_.network.free_port();
  }
  stage_.referee.member_says(*this, message);
  stage_.network.send(socket->second, std::move(message));
}

void Node::apply(const member::HangUp& hang_up) {
  if (dialing_.erase(hang_up.dial) > 0) stage_.network.hang_up(process_, hang_up.dial);
  const auto socket = socket_of_.find(hang_up.dial);
  if (socket == socket_of_.end()) return;
  const SocketId gone = socket->second;
  dial_of_.erase(gone);
  socket_of_.erase(socket);
  stage_.network.close(gone);
}

void Node::apply(const member::Host& host) {
  stage_.referee.require(!seat_, Referee::kOneSeat);
  seat_ = std::make_unique<Seat>(stage_, process_, id_ + "*", CoordinatorLimits{.only_job = kJob},
                                 Authority{id_, host.successor, stage_.plan.rule}, nullptr);
  seat_->restore(host.record);
}

void Node::apply(const member::StopHosting&) {
  seat_.reset();
}

void Node::apply(const member::Placed& placed) {
  stage_.referee.placed(*this, placed.welcome);
  agent_.on(placed);
}

}  // namespace distrun::rendezvous::sim
