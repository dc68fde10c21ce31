#include "rendezvous/etcd/gateway/client.h"

#include "rendezvous/etcd/gateway/http_line.h"
#include "rendezvous/etcd/gateway/json.h"
#include "runtime/base/check.h"

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace distrun::rendezvous::etcd {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// Of one member: what a replica asks at one time.
constexpr std::size_t kMaxIdle = 4;
constexpr int kMaxLogins = 2;  // for one request

// One request, from the first try to its answer.
struct Call {
  Call(asio::io_context& io, Request asked) : request(std::move(asked)), timer(io) {}
  Request request;
  std::string path;
  std::string body;
  TimePoint deadline{};
  std::function<void(Answer answer)> done;
  asio::steady_timer timer;
  std::size_t tries = 0;
  std::map<std::size_t, std::string> troubles;  // by endpoint, the last of each
  std::set<std::size_t> hopeless;               // endpoints
  std::string token;                            // that it was asked with
  int logins = 0;
  bool cut_short = false;  // the last try, by the deadline
};
using CallPtr = std::shared_ptr<Call>;
using LinePtr = std::shared_ptr<HttpLine>;

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Of the token: to ask with a new one may do.
bool is_of_token(const std::string& error) {
  return contains(error, "invalid auth token") || contains(error, "revision in header is old");
}

// That has ended meanwhile: another can be had.
bool is_of_lease(const std::string& error) {
  return contains(error, "requested lease not found");
}

std::string advice_for(const std::string& error) {
  if (contains(error, "user name is empty")) {
    return "; this etcd wants a user and a password";
  }
  if (contains(error, "permission denied")) {
    return "; grant this user to read and write all below the prefix, with etcdctl role "
           "grant-permission --prefix=true";
  }
  if (contains(error, "HTTP request to an HTTPS server")) {
    return "; it speaks TLS: give etcds:// or, to an agent, --rdzv-conf protocol=https";
  }
  if (contains(error, "too large")) {
    return "; raise etcd's --max-request-bytes";
  }
  if (contains(error, "database space exceeded")) {
    return "; compact and defragment etcd, then disarm its alarm";
  }
  return {};
}

}  // namespace

class Client::Impl : public std::enable_shared_from_this<Impl> {
 public:
  Impl(asio::io_context& io, const Cluster& cluster, std::unique_ptr<TlsSource> tls,
       ClientLimits limits, io::Resolver::Lookup lookup)
      : io_(io),
        user_(cluster.security.user),
        password_(cluster.security.password),
        tls_(std::move(tls)),
        limits_(limits),
        idle_(cluster.endpoints.size()) {
    DISTRUN_CHECK(!cluster.endpoints.empty());
    for (const Endpoint& endpoint : cluster.endpoints)
      targets_.push_back(std::make_shared<Target>(Target{endpoint, 0}));
    if (lookup) {
      resolver_.emplace(io, std::move(lookup));
    } else {
      resolver_.emplace(io);
    }
  }

  void ask(Request request, Duration within, std::function<void(Answer)> done) {
    if (closed_) return;
    const auto call = std::make_shared<Call>(io_, std::move(request));
    call->path = path_of(call->request);
    call->body = body_of(call->request);
    call->deadline = Clock::now() + within;
    call->done = std::move(done);
    calls_.insert(call);
    asio::post(io_, [self = shared_from_this(), call] { self->attempt(call); });
  }

  void watch(const std::string& key, Revision from,
             std::function<void(std::optional<KeyValue>)> changed,
             std::function<void(std::string)> ended) {
    unwatch();
    if (closed_) return;
    const std::size_t at = current_;
    watch_ = new_line(at);
    const auto line = watch_;
    const auto over = [weak = weak_from_this(), line_of = std::weak_ptr(line),
                       done = std::move(ended)](std::string why) {
      const auto self = weak.lock();
      const auto held = line_of.lock();
      if (!self || !held || self->watch_ != held) return;
      self->unwatch();
      done(std::move(why));
    };
    line->stream(
        {std::string(kWatchPath), watch_body(key, from), token_}, {limits_.one_try * 2},
        [over, weak = weak_from_this(), line_of = std::weak_ptr(line),
         hear = std::move(changed)](std::string_view text) {
          const auto read = watch_line_from(text);
          if (!read) return over(read.error().detail);
          for (const auto& change : read->changes) {
            const auto self = weak.lock();
            const auto held = line_of.lock();
            if (!self || !held || self->watch_ != held) return;  // it was ended by who heard
            hear(change);
          }
          if (read->ended) over(*read->ended);
        },
        [over, weak = weak_from_this(), at](const HttpLine::Reply& reply) {
          const auto self = weak.lock();
          if (self && reply.status == 0) self->leave(at);
          const std::string why = reply.status == 0 ? reply.body : error_from(reply.body);
          if (self && reply.status != 0 && is_of_token(why)) self->token_.clear();
          over(why);
        });
  }

  void unwatch() {
    if (const auto line = std::exchange(watch_, nullptr)) line->close();
  }

  void close() {
    closed_ = true;
    unwatch();
    for (const LinePtr& line : std::exchange(busy_, {})) line->close();
    for (auto& lines : idle_) {
      for (const LinePtr& line : lines) line->close();
      lines.clear();
    }
    resolver_->cancel();
    for (const CallPtr& call : std::exchange(calls_, {})) {
      call->timer.cancel();
      call->done = nullptr;
    }
  }

 private:
  LinePtr new_line(std::size_t at) {
    return std::make_shared<HttpLine>(io_, *resolver_, targets_[at],
                                      tls_ ? tls_->current() : nullptr, limits_.answer_bytes);
  }
  const Endpoint& endpoint(std::size_t at) const { return targets_[at]->endpoint; }

  void attempt(const CallPtr& call) {
    if (closed_) return;
    const Duration left = call->deadline - Clock::now();
    if (left <= Duration::zero()) return give_up(call);
    const std::size_t at = current_;
    LinePtr line;
    if (!idle_[at].empty()) {
      line = idle_[at].back();
      idle_[at].pop_back();
    } else {
      line = new_line(at);
    }
    busy_.insert(line);
    const bool login = !user_.empty() && token_.empty();
    if (login) ++call->logins;
    call->token = token_;
    call->cut_short = left < limits_.one_try;
    HttpLine::Post post;
    post.path = login ? std::string(kLoginPath) : call->path;
    post.body = login ? login_body(user_, password_) : call->body;
    post.token = token_;
    line->post(post, {login ? limits_.login : limits_.one_try, call->deadline},
               [weak = weak_from_this(), call, at, login,
                line_of = std::weak_ptr(line)](const HttpLine::Reply& reply) {
                 const auto self = weak.lock();
                 const auto used = line_of.lock();
                 if (self && used) self->on_reply(call, at, used, login, reply);
               });
  }

  void on_reply(const CallPtr& call, std::size_t at, const LinePtr& line, bool login,
                const HttpLine::Reply& reply) {
    busy_.erase(line);
    if (closed_) return;
    if (line->usable() && idle_[at].size() < kMaxIdle) idle_[at].push_back(line);
    if (reply.status == 0) {
      if (line->used() && reply.in_time) {  // closed while nobody used it, as all its like
        idle_[at].clear();
        return attempt(call);
      }
      if (reply.hopeless) call->hopeless.insert(at);
      // A try for which there was less time says less than the one before.
      const auto before = call->troubles.find(at);
      const bool says_less = !reply.in_time && call->cut_short && before != call->troubles.end();
      return fail_over(call, at, says_less ? before->second : reply.body);
    }
    if (reply.status == 200 && login) {
      auto token = token_from(reply.body);
      if (!token) return fail_over(call, at, token.error().detail);
      token_ = std::move(*token);
      return attempt(call);
    }
    if (reply.status == 200) {
      auto answer = answer_from(call->request, reply.body);
      if (!answer) return fail_over(call, at, answer.error().detail);
      return finish(call, std::move(*answer));
    }
    const std::string said = error_from(reply.body);
    if (is_of_token(said) && !user_.empty() && call->logins < kMaxLogins) {
      if (token_ == call->token) token_.clear();
      return attempt(call);
    }
    // 5xx: no leader, no majority, overloaded.  Another member may know better, or this one later.
    if (reply.status >= 500 || reply.status == 408 || reply.status == 429) {
      return fail_over(call, at, said);
    }
    if (!is_error_of_etcd(reply.body)) {  // another server, or etcd where it expects TLS
      call->hopeless.insert(at);
      return fail_over(call, at,
                       "HTTP " + std::to_string(reply.status) + ": " + said + advice_for(said));
    }
    Failed failed;
    failed.refused = !is_of_lease(said);
    failed.why = "etcd at " + to_text(endpoint(at)) + " refuses " +
                 (login ? "user " + user_ : call->path) + ": " + said + advice_for(said);
    finish(call, std::move(failed));
  }

  void fail_over(const CallPtr& call, std::size_t at, std::string why) {
    call->troubles[at] = std::move(why);
    leave(at);
    if (call->hopeless.size() == targets_.size()) return give_up(call);
    if (++call->tries % targets_.size() != 0) return attempt(call);
    call->timer.expires_after(limits_.pause);
    call->timer.async_wait([weak = weak_from_this(), call](const error_code& ec) {
      const auto self = weak.lock();
      if (!ec && self) self->attempt(call);
    });
  }

  // Others' requests go to the next one, too.
  void leave(std::size_t at) {
    if (current_ == at) current_ = (at + 1) % targets_.size();
  }

  void give_up(const CallPtr& call) {
    const bool hopeless = call->hopeless.size() == targets_.size();
    std::string text = hopeless ? "etcd cannot be used (" : "etcd does not answer (";
    for (const auto& [at, why] : call->troubles) {
      if (!text.ends_with('(')) text += "; ";
      text += to_text(endpoint(at)) + ": " + why;
    }
    text +=
        hopeless
            ? "); check the endpoints, the CA, the certificates, and whether it speaks TLS at all"
            : "); are most of its members up, and can they be reached from here?";
    finish(call, Failed{std::move(text), hopeless});
  }

  void finish(const CallPtr& call, Answer answer) {
    calls_.erase(call);
    const auto done = std::exchange(call->done, nullptr);
    if (done) done(std::move(answer));
  }

  asio::io_context& io_;
  std::optional<io::Resolver> resolver_;
  std::vector<std::shared_ptr<Target>> targets_;
  std::string user_;
  std::string password_;
  std::unique_ptr<TlsSource> tls_;  // null: none
  ClientLimits limits_;
  std::string token_;        // empty: none is needed, or none is known
  std::size_t current_ = 0;  // the endpoint that answered last
  std::vector<std::vector<LinePtr>> idle_;
  std::set<LinePtr> busy_;
  std::set<CallPtr> calls_;
  LinePtr watch_;
  bool closed_ = false;
};

Result<std::unique_ptr<Client>> Client::open(asio::io_context& io, const Cluster& cluster,
                                             ClientLimits limits, io::Resolver::Lookup lookup) {
  std::unique_ptr<TlsSource> tls;
  if (cluster.security.tls) {
    auto opened = TlsSource::open(cluster.security.files);
    if (!opened) return opened.error();
    tls = std::move(*opened);
  }
  return std::unique_ptr<Client>(
      new Client(std::make_shared<Impl>(io, cluster, std::move(tls), limits, std::move(lookup))));
}

Client::Client(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Client::~Client() {
  close();
}

void Client::ask(Request request, Duration within, std::function<void(Answer)> done) {
  impl_->ask(std::move(request), within, std::move(done));
}

void Client::watch(const std::string& key, Revision from,
                   std::function<void(std::optional<KeyValue>)> changed,
                   std::function<void(std::string)> ended) {
  impl_->watch(key, from, std::move(changed), std::move(ended));
}

void Client::unwatch() {
  impl_->unwatch();
}

void Client::close() {
  impl_->close();
}

}  // namespace distrun::rendezvous::etcd
