#include "rendezvous/etcd/replica.h"

#include "rendezvous/protocol/record_json.h"
#include "runtime/base/log.h"

#include <boost/asio/post.hpp>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <random>
#include <unistd.h>
#include <utility>
#include <variant>
#include <vector>

namespace distrun::rendezvous::etcd {

namespace asio = boost::asio;

namespace {

// For so long it is told how a job ended, also by who reads its record later.
constexpr int kToldSeconds = 600;
constexpr Duration kGrantWithin = std::chrono::seconds(2);

std::string fresh_id() {
  std::random_device random;
  char name[256] = "host";
  ::gethostname(name, sizeof name - 1);
  char suffix[9];
  std::snprintf(suffix, sizeof suffix, "%08x", static_cast<unsigned>(random()));
  return std::string(name) + "." + std::to_string(::getpid()) + "." + suffix;
}

Refused not_yet(const std::string& self) {
  Refused refused;
  refused.code = RefusalCode::not_yet;
  refused.why = self + " stands by, and no other leads at the moment; come again";
  return refused;
}

Refused elsewhere(const std::string& self, const std::string& endpoint) {
  const std::size_t colon = endpoint.rfind(':');
  if (colon == std::string::npos) return not_yet(self);
  Refused refused;
  refused.code = RefusalCode::elsewhere;
  refused.why = self + " stands by; " + endpoint + " leads";
  refused.address = endpoint.substr(0, colon);
  if (refused.address.starts_with('[') && refused.address.ends_with(']')) {
    refused.address = refused.address.substr(1, refused.address.size() - 2);
  }
  const char* const end = endpoint.data() + endpoint.size();
  const auto [stop, fault] = std::from_chars(endpoint.data() + colon + 1, end, refused.port);
  return fault == std::errc() && stop == end ? refused : not_yet(self);
}

// What is likely not meant.
void warn_of(const ReplicaOptions& options, const std::string& endpoint) {
  const std::vector<Endpoint>& etcd = options.cluster.endpoints;
  if (std::all_of(etcd.begin(), etcd.end(), is_loopback)) return;
  if (endpoint.starts_with("127.") || endpoint.starts_with("[::1]"))
    log::warn("agents on other machines are told to come to " + endpoint +
              ", which means themselves; give an address of this machine (distrund: --host or "
              "--advertise, an agent: --local-addr)");
  const Security& security = options.cluster.security;
  if (!security.tls && !security.user.empty())
    log::warn("the password of etcd's user " + security.user +
              " goes over the network as it is; with TLS it would not");
}

}  // namespace

std::string record_for_etcd(Record record) {
  record.hosts.clear();
  return record_to_json(record);
}

Result<std::unique_ptr<Replica>> Replica::start(asio::io_context& io, ReplicaOptions options) {
  auto client = Client::open(io, options.cluster);
  if (!client) return client.error();
  auto listener = Listener::open(io, options.server.address, options.server.port);
  if (!listener) return listener.error();
  LeaderLimits limits;
  limits.keys.prefix = options.cluster.prefix;
  limits.id = fresh_id();
  limits.self = options.self;
  limits.ttl_seconds = options.cluster.ttl_seconds;
  auto endpoint = advertised(options.advertise, options.server.address, (*listener)->port());
  if (!endpoint) return endpoint.error();
  warn_of(options, *endpoint);
  limits.endpoint = std::move(*endpoint);

  std::unique_ptr<Replica> replica(new Replica(io, std::move(options), std::move(*client)));
  replica->endpoint_ = endpoint_text((*listener)->endpoint());
  replica->keys_ = limits.keys;
  replica->port_ = TakeoverPort::adopt(io, std::move(*listener));
  replica->port_->answer_with(not_yet(replica->options_.self));
  replica->leader_.emplace(std::move(limits));
  replica->feed(leader::Start{});
  return replica;
}

Replica::Replica(asio::io_context& io, ReplicaOptions options, std::unique_ptr<Client> client)
    : io_(io), options_(std::move(options)), client_(std::move(client)), timer_(io) {}

Replica::~Replica() {
  timer_.cancel();
}

void Replica::close() {
  if (std::exchange(closed_, true)) return;
  feed(leader::Resign{});
  port_.reset();
}

// ---- the election ------------------------------------------------------------------------------

void Replica::feed(const leader::Event& event) {
  for (const leader::Effect& effect : leader_->handle(event, Clock::now())) {
    std::visit([this](const auto& held) { this->apply(held); }, effect);
  }
  rearm();
}

void Replica::rearm() {
  const auto deadline = leader_->next_deadline();
  if (deadline == armed_for_) return;
  armed_for_ = deadline;
  timer_.cancel();
  if (!deadline) return;
  timer_.expires_at(*deadline);
  timer_.async_wait([this, alive = std::weak_ptr(alive_)](const boost::system::error_code& ec) {
    if (ec || alive.expired()) return;
    armed_for_.reset();
    feed(leader::Tick{});
  });
}

void Replica::later(std::function<void()> what) {
  asio::post(io_, [alive = std::weak_ptr(alive_), what = std::move(what)] {
    if (!alive.expired()) what();
  });
}

void Replica::apply(const leader::Ask& effect) {
  client_->ask(effect.request, effect.within, [this, number = effect.number](Answer answer) {
    feed(leader::Answered{number, std::move(answer)});
  });
}

void Replica::apply(const leader::Watch& effect) {
  const int watch = effect.watch;
  client_->watch(
      keys_.leader(), effect.from,
      [this, watch](std::optional<KeyValue> now) {
        feed(leader::Changed{watch, std::move(now)});
      },
      [this, watch](const std::string& why) {
        log::debug("the watch on etcd ended", {{"reason", why}});
        feed(leader::Deaf{watch});
      });
}

void Replica::apply(const leader::Unwatch&) {
  client_->unwatch();
}

void Replica::apply(const leader::Lead& effect) {
  CoordinatorServerOptions server = server_options();
  for (const KeyValue& job : effect.jobs) {
    auto record = record_from_json(job.value);
    if (record && keys_.job(record->job) == job.key) {
      server.records.push_back(std::move(*record));
      continue;
    }
    log::error("cannot read what is kept in etcd; mend the key or delete it, with etcdctl",
               {{"key", job.key},
                {"reason", record ? "it is of job " + record->job : record.error().detail}});
    const std::string name = job.key.substr(keys_.jobs().size());
    server.unreadable[name] =
        "the record of job " + name + " in etcd cannot be read (" + job.key +
        "): mend the key or delete it, with etcdctl, and let another replica lead";
    if (name != server.limits.only_job) continue;
    later([this] {
      close();
      if (options_.on_failure) options_.on_failure();
    });
    return;
  }
  if (!port_) return;  // closed
  ++tenure_;
  saving_.clear();
  retiring_ = false;
  said_.clear();
  store_.emplace(keys_, effect.revision, effect.lease, effect.patience);
  trouble_.clear();
  server_ = CoordinatorServer::adopt(io_, port_->give_up_socket(), std::move(server));
  if (options_.on_leader) options_.on_leader();
}

void Replica::apply(const leader::GoOn&) {
  trouble_.clear();
  if (server_) server_->go_on();
}

void Replica::apply(const leader::Halt&) {
  ++tenure_;
  store_.reset();
  saving_.clear();
  retiring_ = false;
  if (!server_) return;
  port_->answer_with(not_yet(options_.self));
  port_->take_back(server_->give_up_socket());
  server_.reset();
}

void Replica::apply(const leader::Follow& effect) {
  if (!port_) return;  // closed
  const bool known = !effect.endpoint.empty();
  port_->answer_with(known ? elsewhere(options_.self, effect.endpoint) : not_yet(options_.self));
  if (!known) return;
  trouble_.clear();
  if (options_.on_leader) options_.on_leader();
}

void Replica::apply(const leader::Resigned&) {
  resigned_ = true;
  client_->close();
}

void Replica::apply(const leader::Say& effect) {
  switch (effect.tone) {
    case leader::Tone::info:
      return log::info(effect.text);
    case leader::Tone::warning:
      log::warn(effect.text);
      trouble_ = effect.text;
      if (effect.refused && options_.on_refused)
        later([this, why = effect.text] { options_.on_refused(why); });
      return;
  }
}

CoordinatorServerOptions Replica::server_options() {
  CoordinatorServerOptions server = options_.server;
  server.save = nullptr;
  server.save_async = [this](const Record& record, std::function<void()> saved) {
    save(record, std::move(saved));
  };
  server.forget = [this](const std::string& job) -> Result<void> {
    take_away(job);
    return {};
  };
  server.on_overfull = [this] {
    later([this, tenure = tenure_] {
      if (tenure == tenure_)
        feed(leader::Disowned{"more waits to be kept in etcd than this process can hold"});
    });
  };
  server.may_act = [this](TimePoint now) { return leader_->leads(now); };
  server.may_tell = [this](TimePoint now) { return leader_->acts(now); };
  return server;
}

// ---- what is kept ------------------------------------------------------------------------------

void Replica::forget(const std::string& job) {
  const Rendezvous* const found = server_ ? server_->coordinator().find(job) : nullptr;
  if (found == nullptr || !found->record().over) return take_away(job);
  retire(found->record());
}

void Replica::take_away(const std::string& job) {
  if (!store_) return;
  store_->forget(job);
  pump();
}

void Replica::retire(const Record& record) {
  retiring_ = true;
  client_->ask(Grant{kToldSeconds}, kGrantWithin,
               [this, tenure = tenure_, job = record.job,
                text = record_for_etcd(record)](const Answer& answer) {
                 if (tenure != tenure_ || !store_) return;
                 retiring_ = false;
                 if (const auto* granted = std::get_if<Granted>(&answer)) {
                   store_->save(job, text, granted->lease);
                   return pump();
                 }
                 const auto* failed = std::get_if<Failed>(&answer);
                 log::warn("the record of the ended job stays in etcd",
                           {{"key", keys_.job(job)}, {"reason", failed ? failed->why : ""}});
               });
}

void Replica::save(const Record& record, std::function<void()> saved) {
  if (!store_) return;  // it leads no more
  const auto ticket = store_->save(record.job, record_for_etcd(record));
  saving_.push_back({ticket, std::move(saved)});
  pump();
}

void Replica::pump() {
  if (!store_) return;
  if (const auto transaction = store_->next(Clock::now())) ask_to_keep(*transaction);
}

void Replica::ask_to_keep(const Transaction& transaction) {
  client_->ask(transaction, store_->time_left(Clock::now()),
               [this, tenure = tenure_](const Answer& answer) {
                 if (tenure == tenure_ && store_) on_kept(answer);
               });
}

void Replica::on_kept(const Answer& answer) {
  const EtcdStore::Verdict verdict = store_->answered(answer, Clock::now());
  if (const auto* kept = std::get_if<EtcdStore::Kept>(&verdict)) {
    said_.clear();
    while (store_ && !saving_.empty() && saving_.front().ticket <= kept->upto) {
      const auto saved = std::move(saving_.front().saved);
      saving_.pop_front();
      saved();
    }
    return pump();
  }
  if (const auto* again = std::get_if<EtcdStore::Again>(&verdict)) {
    if (said_ != again->why) log::warn("cannot keep a decision yet: " + again->why);
    said_ = again->why;
    return ask_to_keep(store_->on_its_way());
  }
  if (const auto* disowned = std::get_if<EtcdStore::Disowned>(&verdict)) {
    feed(leader::Disowned{disowned->why});
  }
}

}  // namespace distrun::rendezvous::etcd
