// HttpLine: one connection to one etcd member, one POST at a time.
#pragma once

#include "rendezvous/etcd/gateway/link.h"
#include "rendezvous/etcd/gateway/tls.h"
#include "runtime/base/time.h"
#include "runtime/io/resolver.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace distrun::rendezvous::etcd {

class HttpLine : public std::enable_shared_from_this<HttpLine> {
 public:
  struct Post {
    std::string path;
    std::string body;
    std::string token;  // of who asks; empty: nobody in particular
  };
  struct Reply {
    int status = 0;    // 0: none came
    std::string body;  // or, without status, why none came
    bool in_time = true;
    bool hopeless = false;  // without status: to ask it again gives the same
  };
  // REQUIRES: `resolver` lives until close().  `tls`: null, for none.
  HttpLine(boost::asio::io_context& io, io::Resolver& resolver, std::shared_ptr<Target> to,
           std::shared_ptr<const Tls> tls, std::size_t max_bytes);

  // It was connected before; a failure may mean no more than that the member closed it since.
  bool used() const { return used_; }
  bool usable() const { return link_ && link_->is_open() && keep_; }

  struct Limits {
    Duration within{};                // for the answer, and as much to connect if need be;
    TimePoint by = TimePoint::max();  // for both
  };
  // `done` is called once, unless close() comes first; never from within.
  void post(const Post& post, Limits limits, std::function<void(Reply reply)> done);
  // The same, for an answer without an end: `line` for each of its lines, then `done`.  The limits
  // are up to the first line.  `line` may call close().
  void stream(const Post& post, Limits limits, std::function<void(std::string_view line)> line,
              std::function<void(Reply reply)> done);
  void close();

 private:
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
  void begin(const Post& post, Limits limits, std::function<void(Reply reply)> done);
  void wait(const Limits& limits);
  void write();
  void read();
  void take(std::string_view bytes);
  void on_trouble(const Link::Trouble& trouble);
  void take_lines();
  void answered();
  void fail(const Link::Trouble& trouble, bool in_time = true);
  void finish(Reply reply);

  boost::asio::io_context& io_;
  boost::asio::steady_timer timer_;
  io::Resolver& resolver_;
  std::shared_ptr<Target> to_;
  std::shared_ptr<const Tls> tls_;
  std::size_t max_bytes_;
  std::shared_ptr<Link> link_;
  bool used_ = false;
  bool keep_ = true;  // the member did not say that it closes
  int turn_ = 0;      // of the exchange in hand: callbacks of an older one do nothing
  std::string request_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void(Reply reply)> done_;
  std::function<void(std::string_view line)> line_;
};

}  // namespace distrun::rendezvous::etcd
