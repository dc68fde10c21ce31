#include "agent/remote_rendezvous.h"

#include "agent/outcome.h"
#include "agent/own_addresses.h"
#include "agent/rendezvous_words.h"
#include "runtime/base/log.h"

#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <random>
#include <unistd.h>
#include <utility>
#include <variant>

namespace distrun::agent {
namespace {

namespace asio = boost::asio;
using rendezvous::Member;

constexpr Duration kLookUpEndpoint = std::chrono::seconds(5);
constexpr Duration kLookUpAgain = std::chrono::milliseconds(500);
constexpr Duration kSayAgain = std::chrono::seconds(5);
constexpr Duration kSayAgainOfEtcd = std::chrono::seconds(30);
// Through etcd it is this node's own port that is asked where the coordinator is.
constexpr Backoff::Limits kAskOwnPort{std::chrono::milliseconds(20),
                                      std::chrono::milliseconds(100)};
// Of a host that leaves: to say so, not to see the job's end.
constexpr Duration kGoodbye = std::chrono::milliseconds(200);

rendezvous::NodeId fresh_node_id(const std::string& host) {
  std::random_device random;
  char suffix[9];
  std::snprintf(suffix, sizeof suffix, "%08x", static_cast<unsigned>(random()));
  return host + "." + std::to_string(::getpid()) + "." + suffix;
}

std::optional<asio::ip::address> literal(const std::string& text) {
  boost::system::error_code not_one;
  const auto address = asio::ip::make_address(text, not_one);
  return not_one ? std::nullopt : std::optional(address);
}

bool names_loopback(const std::string& host) {
  const auto address = literal(host);
  return host == "localhost" || (address && address->is_loopback());
}

std::string any_address(bool v6) {
  return v6 ? "::" : "0.0.0.0";
}

bool same_failure(const rendezvous::Failure& a, const rendezvous::Failure& b) {
  return a.host == b.host && a.rank == b.rank && a.pid == b.pid;
}

std::string_view reason_of(JobResult result) {
  switch (result) {
    case JobResult::succeeded:
      return "it is done";
    case JobResult::failed:
      return "it failed";
    case JobResult::interrupted:
      return "it was told to stop";
    case JobResult::no_round:
      return "it got no round";
  }
  return "it left";
}

}  // namespace

RemoteRendezvous::RemoteRendezvous(asio::io_context& io, const Spec& spec,
                                   RemoteRendezvousOptions options)
    : io_(io),
      spec_(spec),
      options_(std::move(options)),
      node_(fresh_node_id(options_.host_name)),
      resolver_(io),
      timer_(io) {}

RemoteRendezvous::~RemoteRendezvous() {
  for (const auto& [dial, line] : lines_) line.connection->hang_up();
}

// ---- the agent's verbs -------------------------------------------------------------------------

void RemoteRendezvous::join(const Join& join, std::string report) {
  rendezvous::member::Asked asked;
  if (join.ended && member_) {
    asked.outcome = outcome_of(*join.ended, member_->round(), options_.host_name, std::move(report),
                               Clock::now());
    if (asked.outcome->failure) own_failure_ = asked.outcome->failure;
  }
  feed(std::move(asked));
  if (!member_ && !question_ && !elected_) begin();
}

void RemoteRendezvous::report(const Report& report) {
  own_failure_ = failure_of(report.failure, options_.host_name, Clock::now());
  feed(rendezvous::member::FailedHere{*own_failure_});
}

void RemoteRendezvous::leave(const Leave& leave) {
  waiting_.reset();
  question_.reset();
  resolver_.cancel();
  if (over_) return;
  left_ = true;
  over_ = true;
  if (elected_) elected_->stand_down();
  if (!member_) {
    timer_.cancel();
    return;
  }
  farewell_until_ = Clock::now() + kGoodbye;
  feed(rendezvous::member::Left{std::string(reason_of(leave.result))});
}

// ---- who hosts ---------------------------------------------------------------------------------

void RemoteRendezvous::begin() {
  if (options_.etcd) return stand_for_election();
  if (options_.is_host == false) return begin_member(false);
  look_up_until_ = Clock::now() + options_.start_timeout / 2;
  look_up_endpoint();
}

void RemoteRendezvous::stand_for_election() {
  ElectedCoordinator::Options options;
  options.cluster = *options_.etcd;
  options.job = options_.job;
  options.local_addr = options_.local_addr;
  rendezvous::Authority elected;
  elected.elected = node_;
  options.server = server_options(std::move(elected));
  options.on_known = [this](const rendezvous::Contact& own) {
    if (over_) return;
    timer_.cancel();
    options_.endpoint = own;
    begin_member(false);
  };
  options.on_refused = [this](const std::string& why) {
    if (std::exchange(over_, true)) return;
    waiting_.reset();
    if (member_) {
      feed(rendezvous::member::Left{why});
    } else {
      timer_.cancel();
    }
    answer_(RoundFailed{RoundError::refused, why});
  };
  elected_ = std::make_unique<ElectedCoordinator>(io_, std::move(options));
  wait_for_etcd(Clock::now() + options_.start_timeout);
}

void RemoteRendezvous::wait_for_etcd(TimePoint until) {
  timer_.expires_at(std::min(until, Clock::now() + kSayAgainOfEtcd));
  timer_.async_wait([this, until](const boost::system::error_code& ec) {
    if (ec || over_ || member_) return;
    const std::string why = elected_->trouble();
    if (Clock::now() < until) {
      log::info("no coordinator yet", {{"reason", why.empty() ? waiting_for() : why}});
      return wait_for_etcd(until);
    }
    const std::string what = why.empty() ? "nobody was elected through " + waiting_for() : why;
    over_ = true;
    elected_->stand_down();
    answer_(
        RoundFailed{RoundError::timed_out,
                    "no coordinator in " + duration_text(options_.start_timeout) + ": " + what});
  });
}

void RemoteRendezvous::look_up_endpoint() {
  question_ = resolver_.ask(options_.endpoint.address, kLookUpEndpoint,
                            [this](auto addresses) { on_endpoint(std::move(addresses)); });
}

void RemoteRendezvous::on_endpoint(Result<io::Resolver::Addresses> addresses) {
  if (!addresses && options_.is_host != true) {
    // It may be this node's own: then nobody else would host.  So not before it is known.
    const bool first = lookups_++ == 0;
    if (Clock::now() + kLookUpAgain >= look_up_until_) return begin_member(false);
    if (first) {
      log::info("the endpoint's name cannot be looked up yet; trying again",
                {{"reason", addresses.error().detail}});
    }
    timer_.expires_after(kLookUpAgain);
    timer_.async_wait([this](const boost::system::error_code& ec) {
      if (!ec && !over_) look_up_endpoint();
    });
    return;
  }
  const auto hosts = host_endpoint(addresses ? *addresses : io::Resolver::Addresses{});
  if (!hosts) {
    over_ = true;
    return answer_(RoundFailed{RoundError::closed, hosts.error().detail});
  }
  begin_member(*hosts);
}

// True: this node's coordinator listens at the endpoint.  An error only for who was told to host.
Result<bool> RemoteRendezvous::host_endpoint(const io::Resolver::Addresses& addresses) {
  const bool told_to = options_.is_host == true;
  const std::uint16_t port = options_.endpoint.port;
  io::Resolver::Addresses own;
  for (const auto& address : addresses) {
    if (is_own_address(address)) own.push_back(address);
  }
  // An agent, or distrund, that serves one of the addresses is the coordinator: no second one.
  for (const auto& address : own) {
    if (!told_to && port_is_taken(address, port)) return false;
  }
  std::string listens;
  std::string reached;
  if (own.empty()) {
    if (!told_to) return false;
    listens = any_address(false);  // behind an address that is translated
    reached = "127.0.0.1";
  } else {
    const auto v4 = std::find_if(own.begin(), own.end(), [](const auto& a) { return a.is_v4(); });
    const asio::ip::address& address = v4 != own.end() ? *v4 : own.front();
    // A machine's own name may lead to loopback on itself and nowhere else (Debian's 127.0.1.1).
    const bool trap = address.is_loopback() && !names_loopback(options_.endpoint.address);
    listens = trap ? any_address(address.is_v6()) : address.to_string();
    reached = address.to_string();
  }
  auto options = server_options(authority(0));
  options.address = listens;
  options.port = port;
  auto server = rendezvous::CoordinatorServer::listen(io_, std::move(options));
  if (!server) {
    if (told_to) {
      return Error{server.error().code, "--rdzv-conf is_host=true: " + server.error().detail};
    }
    log::warn("this node has the endpoint's address and cannot host the rendezvous",
              {{"reason", server.error().detail}});
    return false;
  }
  server_ = std::move(*server);
  at_endpoint_ = true;
  endpoint_listens_ = listens;
  own_endpoint_ = rendezvous::Contact{reached, server_->port()};
  log::info("this node hosts the rendezvous", {{"endpoint", server_->endpoint()}});
  return true;
}

rendezvous::Authority RemoteRendezvous::authority(int successor) const {
  return {.host = node_, .successor = successor, .rule = options_.takeover};
}

rendezvous::CoordinatorServerOptions RemoteRendezvous::server_options(
    rendezvous::Authority authority) {
  rendezvous::CoordinatorServerOptions options;
  options.limits.only_job = options_.job;
  options.authority = std::move(authority);
  if (!open_event_file()) return options;
  options.on_start = [events = events_.get(), limits = options.limits,
                      authority = options.authority](const std::vector<rendezvous::Record>& records,
                                                     TimePoint now) {
    events->start(limits, authority, records, now);
  };
  options.on_input = [events = events_.get()](const rendezvous::Event& event, TimePoint now) {
    events->on_input(event, now);
  };
  options.on_happening = [events = events_.get()](const rendezvous::Happening& happening,
                                                  TimePoint now) {
    events->on_happening(happening, now);
  };
  return options;
}

bool RemoteRendezvous::open_event_file() {
  if (events_ || options_.events_file.empty()) return events_ != nullptr;
  auto opened = rendezvous::EventFile::open(options_.events_file);
  if (opened) {
    events_ = std::move(*opened);
  } else {
    log::warn("no events are written", {{"reason", opened.error().detail}});
  }
  return events_ != nullptr;
}

void RemoteRendezvous::begin_member(bool hosts) {
  rendezvous::MemberLimits limits;
  limits.self.job = options_.job;
  limits.self.token = options_.token;
  limits.self.node = node_;
  limits.self.host = options_.host_name;
  limits.self.address = options_.local_addr;
  limits.self.nproc = spec_.nproc;
  limits.self.role = spec_.role;
  limits.self.node_rank = options_.node_rank;
  limits.self.terms = options_.terms;
  limits.endpoint = options_.endpoint;
  limits.hosts = hosts;
  limits.rule = options_.takeover;
  limits.takeover = !elected_ && options_.takeover != rendezvous::TakeoverRule::never;
  if (elected_) limits.backoff = kAskOwnPort;
  limits.start_timeout = options_.start_timeout;
  limits.patience = options_.patience;
  limits.takeover_patience = options_.takeover_patience;
  limits.seed = std::random_device{}();
  member_.emplace(std::move(limits));
  run_inbox();
}

// ---- the loop ----------------------------------------------------------------------------------

void RemoteRendezvous::feed(rendezvous::member::Event event) {
  inbox_.push_back(std::move(event));
  if (member_ && !busy_) run_inbox();
}

void RemoteRendezvous::run_inbox() {
  busy_ = true;
  while (!inbox_.empty()) {
    const rendezvous::member::Event next = std::move(inbox_.front());
    inbox_.pop_front();
    for (const rendezvous::member::Effect& effect : member_->handle(next, Clock::now())) {
      std::visit([this](const auto& e) { apply(e); }, effect);
    }
  }
  busy_ = false;
  rearm();
}

void RemoteRendezvous::rearm() {
  const auto deadline = member_->next_deadline();
  if (deadline == armed_for_) return;
  armed_for_ = deadline;
  if (!deadline) {
    timer_.cancel();
    return;
  }
  timer_.expires_at(*deadline);
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (ec) return;
    armed_for_.reset();
    feed(rendezvous::member::Tick{});
  });
}

// ---- connections -------------------------------------------------------------------------------

void RemoteRendezvous::apply(const rendezvous::member::Dial& effect) {
  const int dial = effect.dial;
  CoordinatorLine::Callbacks callbacks;
  callbacks.connected = [this, dial](std::string local_address) {
    lines_.at(dial).local_address = local_address;
    feed(rendezvous::member::Connected{dial, std::move(local_address)});
  };
  callbacks.not_connected = [this, dial](rendezvous::member::NoAnswer reason, std::string why) {
    lines_.erase(dial);
    feed(rendezvous::member::NotConnected{dial, reason, std::move(why)});
  };
  callbacks.received = [this, dial](rendezvous::CoordinatorMessage message) {
    feed(rendezvous::member::Received{dial, std::move(message)});
  };
  callbacks.closed = [this, dial](std::string why) {
    lines_.erase(dial);
    feed(rendezvous::member::Closed{dial, std::move(why)});
  };
  // Its own server is reached without asking a name server.
  const bool to_itself = member_->hosting() && at_endpoint_ && effect.contact == options_.endpoint;
  const rendezvous::Contact& contact = to_itself ? *own_endpoint_ : effect.contact;
  lines_[dial].connection =
      CoordinatorLine::dial(io_, resolver_, contact, effect.timeout, std::move(callbacks));
}

void RemoteRendezvous::apply(const rendezvous::member::Send& effect) {
  const auto found = lines_.find(effect.dial);
  if (found == lines_.end()) return;  // closed: the core is about to hear of it
  const Line line = found->second;    // a send may find it closed, and erase it
  rendezvous::AgentMessage message = effect.message;
  if (auto* join = std::get_if<rendezvous::Join>(&message)) {
    complete(*join, line);
  } else if (auto* ended = std::get_if<rendezvous::Ended>(&message)) {
    open_store(listen_address(
        options_.local_addr.empty() ? line.local_address : options_.local_addr, line));
    ended->store_port = spec_.master_port;
    if (next_store_) ended->store_port = next_store_->port();
  }
  line.connection->send(message);
}

void RemoteRendezvous::complete(rendezvous::Join& join, const Line& line) {
  // Attached, it only looks at another coordinator, and its ports are what its own was told.
  const bool looks = member_->phase() == rendezvous::MemberPhase::attached;
  const std::string address = listen_address(join.address, line);
  if (!looks || !takeover_port_) open_takeover_port(address);
  if (server_ && !at_endpoint_) {
    join.takeover_port = server_->port();
  } else if (takeover_port_) {
    join.takeover_port = takeover_port_->port();
  }
  if (join.held && !join.held->outcome) return;  // its workers run
  if (!looks || !next_store_) open_store(address);
  join.store_port = next_store_ ? next_store_->port() : spec_.master_port;
}

void RemoteRendezvous::apply(const rendezvous::member::HangUp& effect) {
  const auto found = lines_.find(effect.dial);
  if (found == lines_.end()) return;
  found->second.connection->hang_up();
  lines_.erase(found);
}

// ---- hosting -----------------------------------------------------------------------------------

void RemoteRendezvous::apply(const rendezvous::member::Host& effect) {
  if (!takeover_port_) return;  // the dial that follows says that nobody is there
  auto options = server_options(authority(effect.successor));
  options.records.push_back(effect.record);
  server_ = rendezvous::CoordinatorServer::adopt(io_, takeover_port_->give_up_socket(),
                                                 std::move(options));
  at_endpoint_ = false;
}

void RemoteRendezvous::apply(const rendezvous::member::StopHosting&) {
  if (!server_) return;
  if (!at_endpoint_) {
    takeover_port_->take_back(server_->give_up_socket());
    server_.reset();
    return;
  }
  const std::uint16_t port = server_->port();
  server_->close();
  server_.reset();
  at_endpoint_ = false;
  auto answering = rendezvous::TakeoverPort::listen(io_, endpoint_listens_, port);
  if (answering) former_endpoint_ = std::move(*answering);
  if (former_endpoint_ && direction_) former_endpoint_->answer_with(*direction_);
}

void RemoteRendezvous::apply(const rendezvous::member::Direct& effect) {
  direction_ = effect.answer;
  if (takeover_port_ && (!server_ || at_endpoint_)) takeover_port_->answer_with(effect.answer);
  if (former_endpoint_) former_endpoint_->answer_with(effect.answer);
}

void RemoteRendezvous::open_takeover_port(const std::string& address) {
  if (elected_ || options_.takeover == rendezvous::TakeoverRule::never) return;
  if (takeover_port_ && takeover_listens_ == address) return;
  if (server_ && !at_endpoint_) return;  // it is in use
  auto opened = rendezvous::TakeoverPort::listen(io_, address);
  if (!opened) {
    log::debug("this node cannot take the rendezvous over", {{"reason", opened.error().detail}});
    return;
  }
  takeover_port_ = std::move(*opened);
  takeover_listens_ = address;
  if (direction_) takeover_port_->answer_with(*direction_);
}

// ---- the workers' store ------------------------------------------------------------------------

// Where to listen so that others reach what is advertised.
std::string RemoteRendezvous::listen_address(const std::string& advertised,
                                             const Line& line) const {
  const auto local = literal(line.local_address);
  const bool v6 = local && local->is_v6();
  const auto address = literal(advertised);
  if (!address || !is_own_address(*address)) return any_address(v6);  // a name, or translated
  // Known to itself as loopback only: the coordinator tells the others a better address.
  if (address->is_loopback() && !names_loopback(options_.endpoint.address)) {
    return any_address(address->is_v6());
  }
  return advertised;
}

void RemoteRendezvous::open_store(const std::string& address) {
  // A fresh one for each Join: the Welcome to the last may be lost, and others use that store.
  next_store_listens_ = address;
  next_store_.reset();  // before the next one is opened: the port may be the same
  // A fixed port is in use until the old round is over on all nodes; it is opened with the next.
  if (store_ && spec_.master_port != 0) return;
  rendezvous::StoreServerOptions options;
  options.address = address;
  options.port = spec_.master_port;
  auto store = rendezvous::StoreServer::listen(io_, options);
  if (store) {
    next_store_ = std::move(*store);
  } else {
    store_problem_ = store.error().detail;
  }
}

void RemoteRendezvous::apply(const rendezvous::member::Placed& effect) {
  waiting_.reset();
  own_failure_.reset();
  store_.reset();
  if (effect.welcome.node_rank != NodeRank(0)) {
    next_store_.reset();
  } else {
    if (!next_store_) open_store(std::string(next_store_listens_));
    // If there was none when this node joined, the others were told of no port that is true.
    if (!next_store_ || next_store_->port() != effect.welcome.master_port) {
      no_round(RoundError::no_store,
               store_problem_.empty()
                   ? "the other nodes were told of another port of the workers' store"
                   : store_problem_);
      return;
    }
    store_ = std::move(next_store_);
  }
  answer_(Welcome{assignment_of(effect.welcome)});
}

// ---- what the agent hears ----------------------------------------------------------------------

void RemoteRendezvous::apply(const rendezvous::member::Disbanded& effect) {
  answer_(Disband{effect.round.generation, effect.why});
}

void RemoteRendezvous::apply(const rendezvous::member::JobOver& effect) {
  over_ = true;
  // Before its coordinator, which waits for that, gives its own place up.
  if (elected_) elected_->stand_down();
  waiting_.reset();
  store_.reset();
  next_store_.reset();
  if (const rendezvous::Rendezvous* job = hosted_job()) {
    // Who is just now looking for this coordinator is to find it and to hear the end.
    const auto state = job->state();
    const auto here = std::count_if(state.members.begin(), state.members.end(),
                                    [](const auto& member) { return member.rank.has_value(); });
    if (here < state.node_count) {
      farewell_until_ = Clock::now() + options_.terms.silence();
    }
  }
  const bool failed_here =
      effect.over.failure && own_failure_ && same_failure(*effect.over.failure, *own_failure_);
  answer_(event_of(effect.over, failed_here));
}

void RemoteRendezvous::apply(const rendezvous::member::NoRound& effect) {
  over_ = true;
  if (elected_) elected_->stand_down();
  waiting_.reset();
  const auto error = [&] {
    switch (effect.reason) {
      case rendezvous::member::GaveUp::timed_out:
        return RoundError::timed_out;
      case rendezvous::member::GaveUp::closed:
        return RoundError::closed;
      case rendezvous::member::GaveUp::refused:
        return RoundError::refused;
    }
    return RoundError::closed;
  }();
  answer_(RoundFailed{error, effect.why});
}

void RemoteRendezvous::no_round(RoundError error, std::string why) {
  over_ = true;
  feed(rendezvous::member::Left{"it cannot open the workers' store: " + why});
  answer_(RoundFailed{error, std::move(why)});
}

void RemoteRendezvous::apply(const rendezvous::member::Say& effect) {
  switch (effect.tone) {
    case rendezvous::member::Tone::debug:
      return log::debug(effect.text);
    case rendezvous::member::Tone::info:
      return log::info(effect.text);
    case rendezvous::member::Tone::warning:
      return log::warn(effect.text);
  }
}

void RemoteRendezvous::apply(const rendezvous::member::Progress& effect) {
  const bool news = !waiting_ || !same_but_for_time(*waiting_, effect.waiting);
  waiting_ = effect.waiting;
  const TimePoint now = Clock::now();
  if (!news && now - logged_ < kSayAgain) return;
  logged_ = now;
  log::info(words(*waiting_));
}

std::string RemoteRendezvous::waiting_for() const {
  if (waiting_) return words(*waiting_);
  if (over_) return {};
  if (!member_) return options_.etcd ? "etcd at " + to_text(options_.etcd->endpoints) : "";
  switch (member_->phase()) {
    case rendezvous::MemberPhase::dialing:
    case rendezvous::MemberPhase::pausing:
      if (options_.etcd)
        return "a coordinator, elected through etcd at " + to_text(options_.etcd->endpoints);
      return "the coordinator at " + options_.endpoint.address + ":" +
             std::to_string(options_.endpoint.port);
    case rendezvous::MemberPhase::idle:
    case rendezvous::MemberPhase::attached:
    case rendezvous::MemberPhase::done:
      return {};
  }
  return {};
}

std::string RemoteRendezvous::coordinator_endpoint() const {
  return server() ? server()->endpoint() : std::string();
}

// ---- the end -----------------------------------------------------------------------------------

const rendezvous::CoordinatorServer* RemoteRendezvous::server() const {
  return elected_ ? elected_->server() : server_.get();
}

const rendezvous::Rendezvous* RemoteRendezvous::hosted_job() const {
  return server() ? server()->coordinator().find(options_.job) : nullptr;
}

bool RemoteRendezvous::others_need_this_node() const {
  const rendezvous::Rendezvous* job = hosted_job();
  if (job == nullptr || !over_) return false;
  if (farewell_until_ && Clock::now() < *farewell_until_) return true;
  return !left_ && !job->empty();
}

bool RemoteRendezvous::idle() {
  if (others_need_this_node()) return false;
  if (!elected_) return true;
  const rendezvous::Rendezvous* job = hosted_job();
  return elected_->wind_up(job != nullptr && job->empty());
}

void RemoteRendezvous::close() {
  elected_.reset();
  server_.reset();
  former_endpoint_.reset();
  takeover_port_.reset();
  next_store_.reset();
  store_.reset();
}

}  // namespace distrun::agent
