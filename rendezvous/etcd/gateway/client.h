// Client: asks an etcd cluster through its JSON gateway, over HTTP/1.1.
//
//   request --> the member that answered last --no answer, no connection, no leader--> the next …
//                  \--answered--> done                         (until `within` has passed)
//
// A connection is kept for the next request.  A try has its own limit, so a member that hangs costs
// half a second, to connect or then to answer.  After all members failed in a row there is a short
// pause.
//
// With a user, a request without a token asks for one first.  Tokens end: of old age, or when users
// change.  What is answered with that is asked once more, with a new one.
//
// Which endpoint is none of etcd's, or cannot be spoken with, is passed over as long as another may
// do.
//
// One thread, the io_context's.  Certificates are read again when their files have changed.
#pragma once

#include "rendezvous/etcd/cluster.h"
#include "rendezvous/etcd/core/requests.h"
#include "runtime/base/result.h"
#include "runtime/base/time.h"
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace distrun::rendezvous::etcd {

struct ClientLimits {
  Duration one_try = std::chrono::milliseconds(500);
  Duration login = std::chrono::seconds(2);         // etcd's check of a password is slow on purpose
  Duration pause = std::chrono::milliseconds(100);  // after each member has failed once
  std::size_t answer_bytes = 64UL * 1024 * 1024;
};

class Client {
 public:
  // REQUIRES: `io` outlives it.  The error names the file that cannot be used.  `lookup`: of names;
  // empty: as the machine does.
  static Result<std::unique_ptr<Client>> open(boost::asio::io_context& io, const Cluster& cluster,
                                              ClientLimits limits = {},
                                              io::Resolver::Lookup lookup = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // `done` is called once, unless close() comes first; never from within.
  void ask(Request request, Duration within, std::function<void(Answer answer)> done);
  // Follows one key from that revision on, until it ends (nothing is tried again).  Replaces the
  // watch before, whose callbacks do not come any more.
  void watch(const std::string& key, Revision from,
             std::function<void(std::optional<KeyValue> now)> changed,
             std::function<void(std::string why)> ended);
  void unwatch();
  // No more callbacks.  Idempotent.
  void close();

 private:
  class Impl;
  explicit Client(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;
};

}  // namespace distrun::rendezvous::etcd
