// NameLookup: a host name's addresses, without stopping the loop.
//
// The C library's lookup blocks, for half a minute if a name server is away, and cannot be ended.
// So it runs in a thread of its own that nobody waits for: not this class when it is cancelled or
// out of time, and not the process when it exits.  An address as text is answered without one.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace distrun::io {

class NameLookup : public std::enable_shared_from_this<NameLookup> {
 public:
  // In the order in which they are to be tried; at least one, at most kMaxAddresses.
  using Addresses = std::vector<boost::asio::ip::address>;
  using Answer = std::function<void(Result<Addresses>)>;
  static constexpr std::size_t kMaxAddresses = 8;

  // Calls `answer` once, later, from the loop, unless it is cancelled.  An error says why in a
  // clause: "nowhere.example: Name or service not known".
  static std::shared_ptr<NameLookup> start(boost::asio::io_context& io, std::string host,
                                           Duration timeout, Answer answer);
  void cancel();

 private:
  struct Shared;  // with the thread
  explicit NameLookup(boost::asio::io_context& io);
  void run(std::string host, Duration timeout);
  void finish(Result<Addresses> result);

  Answer answer_;
  std::shared_ptr<Shared> shared_;
  boost::asio::posix::stream_descriptor done_;  // readable (closed) when the thread has finished
  boost::asio::steady_timer timer_;
};

}  // namespace distrun::io
