#include "agent/local_rendezvous.h"

#include "agent/outcome.h"

#include <boost/asio/ip/address.hpp>

#include <algorithm>
#include <utility>
#include <variant>

namespace distrun::agent {
namespace {

const rendezvous::SessionId kSession{1};
const rendezvous::NodeId kNode = "local";
// A member in this very process is not lost: no pings, so that an idle launcher sleeps.
constexpr Duration kBeat = std::chrono::hours(24);  // and nobody sets a timer for it
constexpr int kBeatsMissed = 10'000;

// A name server that is away answers after that, or not at all.
constexpr Duration kLookup = std::chrono::seconds(30);

// IPv4 before IPv6.
std::string first_of(const io::NameLookup::Addresses& addresses) {
  const auto v4 = std::find_if(addresses.begin(), addresses.end(),
                               [](const auto& address) { return address.is_v4(); });
  return (v4 != addresses.end() ? *v4 : addresses.front()).to_string();
}

rendezvous::Terms terms_of(const Spec& spec) {
  rendezvous::Terms terms;
  terms.command = spec.command.display_name;
  terms.max_restarts = spec.max_restarts;
  terms.restart_window = spec.restart_window;
  terms.beat = kBeat;
  terms.beats_missed = kBeatsMissed;
  return terms;
}

rendezvous::Join first_join(const Spec& spec) {
  rendezvous::Join join;
  join.job = spec.run_id;
  join.node = kNode;
  join.host = spec.host_name;
  join.nproc = spec.nproc;
  join.role = spec.role;
  join.terms = terms_of(spec);
  return join;
}

}  // namespace

LocalRendezvous::LocalRendezvous(boost::asio::io_context& io, const Spec& spec)
    : io_(io), spec_(spec), decisions_(first_join(spec), rendezvous::Authority{}), timer_(io) {}

void LocalRendezvous::join(const Join& join, std::string report) {
  store_.reset();  // before the next one is opened: the port may be the same
  answer_owed_ = true;
  if (join.ended) {
    rendezvous::Ended ended;
    ended.outcome =
        outcome_of(*join.ended, round_, spec_.host_name, std::move(report), Clock::now());
    return say(std::move(ended));
  }
  say(first_join(spec_));
}

void LocalRendezvous::report(const Report& report) {
  say(rendezvous::Failed{round_, failure_of(report.failure, spec_.host_name, Clock::now())});
}

LocalRendezvous::~LocalRendezvous() {
  if (lookup_) lookup_->cancel();
}

void LocalRendezvous::leave(const Leave&) {
  if (lookup_) lookup_->cancel();
  store_.reset();
  timer_.cancel();
}

void LocalRendezvous::say(rendezvous::AgentMessage message) {
  rendezvous::Received received;
  received.session = kSession;
  received.message = std::move(message);
  tell(received);
}

void LocalRendezvous::tell(const rendezvous::Event& event) {
  for (const rendezvous::Effect& effect : decisions_.handle(event, Clock::now())) {
    const auto* send =
        std::get_if<rendezvous::Send>(&effect);  // there is nobody else to hear of it
    if (send == nullptr) continue;
    std::visit([this](const auto& message) { on(message); }, send->message);
  }
  await_answer();
}

// With one node every question is answered at once.  Should one not be, it will be by a deadline.
void LocalRendezvous::await_answer() {
  const auto deadline = decisions_.next_deadline();
  if (!answer_owed_ || !deadline) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([this](const boost::system::error_code& ec) {
    if (!ec && answer_owed_) tell(rendezvous::Tick{});
  });
}

void LocalRendezvous::on(const rendezvous::Welcome& welcome) {
  answer_owed_ = false;
  round_ = welcome.round;
  boost::system::error_code no_address;
  boost::asio::ip::make_address(spec_.master_addr, no_address);
  if (!no_address) return open_store(welcome, spec_.master_addr);
  lookup_ = io::NameLookup::start(io_, spec_.master_addr, kLookup, [this, welcome](auto found) {
    if (found) return open_store(welcome, first_of(*found));
    answer_(RoundFailed{RoundError::no_store,
                        "--master-addr cannot be looked up: " + found.error().detail +
                            "; give an address of this machine"});
  });
}

void LocalRendezvous::open_store(const rendezvous::Welcome& welcome, const std::string& address) {
  rendezvous::StoreServerOptions options;
  options.address = address;
  options.port = spec_.master_port;
  auto store = rendezvous::StoreServer::listen(io_, options);
  if (!store) return answer_(RoundFailed{RoundError::no_store, store.error().detail});
  store_ = std::move(*store);
  Assignment assignment = assignment_of(welcome);
  assignment.master_addr = address;
  assignment.master_port = store_->port();
  answer_(Welcome{assignment});
}

void LocalRendezvous::on(const rendezvous::Over& over) {
  answer_owed_ = false;
  answer_(event_of(over, true));
}

void LocalRendezvous::on(const rendezvous::Refused& refused) {
  answer_owed_ = false;
  answer_(RoundFailed{RoundError::refused, refused.why});
}

void LocalRendezvous::on(const rendezvous::Disband& disband) {
  answer_(Disband{disband.round.generation, disband.why});
}

void LocalRendezvous::on(const rendezvous::Ping& ping) {
  say(rendezvous::Pong{ping.number});
}

}  // namespace distrun::agent
