#include "apps/distrund/daemon.h"

#include "runtime/base/log.h"

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace distrun::daemon {
namespace {

using namespace rendezvous;

Result<etcd::Cluster> etcd_of(const Options& options) {
  auto cluster = etcd::parse_cluster(options.state);
  if (!cluster) return cluster;
  if (cluster->security.tls) {
    cluster->security.files = options.etcd_tls;
  } else if (options.etcd_tls != etcd::TlsFiles{}) {
    return Error{Errc::invalid_argument,
                 "--etcd-cacert, --etcd-cert and --etcd-key are for etcds://…"};
  }
  cluster->ttl_seconds = options.etcd_ttl;
  const auto set =
      etcd::complete(cluster->security, [](const char* name) -> std::optional<std::string> {
        const char* const value = std::getenv(name);
        return value == nullptr ? std::nullopt : std::optional<std::string>(value);
      });
  if (!set) return set.error();
  return cluster;
}

void say(const Happening& happening) {
  log::Fields fields{{"job", happening.job}};
  if (happening.round.generation.value >= 0)
    fields.emplace_back("round", std::to_string(happening.round.generation.value));
  log::info(happening.text, fields);
}

}  // namespace

Result<std::unique_ptr<Daemon>> Daemon::start(boost::asio::io_context& io, const Options& options,
                                              std::function<void()> on_failure) {
  std::unique_ptr<Daemon> daemon(new Daemon());
  const bool replicated = etcd::is_etcd(options.state);
  if (!replicated && !options.advertise.empty()) {
    return Error{Errc::invalid_argument, "--advertise: only with --state etcd://…"};
  }
  if (!replicated && options.etcd_ttl != Options{}.etcd_ttl) {
    return Error{Errc::invalid_argument, "--etcd-ttl: only with --state etcd://…"};
  }
  etcd::ReplicaOptions replica;
  if (replicated) {
    auto cluster = etcd_of(options);
    if (!cluster) return Error{cluster.error().code, "--state: " + cluster.error().detail};
    replica.cluster = std::move(*cluster);
    replica.advertise = options.advertise;
    replica.on_failure = std::move(on_failure);
  } else if (!options.state.empty()) {
    auto journal = Journal::open(options.state);
    if (!journal) return journal.error();
    daemon->journal_ = std::move(*journal);
  }
  if (!options.events.empty()) {
    auto events = EventFile::open(options.events);
    if (!events) return events.error();
    daemon->events_ = std::move(*events);
  }
  if (replicated) {
    replica.server = daemon->server_options(options);
    auto started = etcd::Replica::start(io, std::move(replica));
    if (!started) return started.error();
    daemon->replica_ = std::move(*started);
    return daemon;
  }
  auto server = CoordinatorServer::listen(io, daemon->server_options(options));
  if (!server) return server.error();
  daemon->server_ = std::move(*server);
  return daemon;
}

CoordinatorServerOptions Daemon::server_options(const Options& options) {
  CoordinatorServerOptions server;
  server.address = options.host;
  server.port = options.port;
  server.max_total_bytes = options.max_memory;
  if (journal_) {
    server.records = journal_->records();
    server.save = [this](const Record& record) { return journal_->save(record); };
    server.forget = [this](const std::string& job) { return journal_->forget(job); };
  }
  server.on_happening = [this](const Happening& happening, TimePoint now) {
    say(happening);
    if (events_) events_->on_happening(happening, now);
  };
  if (events_) {
    server.on_start = [this, limits = server.limits](const std::vector<Record>& records,
                                                     TimePoint now) {
      events_->start(limits, {}, records, now);
    };
    server.on_input = [this](const Event& event, TimePoint now) { events_->on_input(event, now); };
  }
  return server;
}

}  // namespace distrun::daemon
