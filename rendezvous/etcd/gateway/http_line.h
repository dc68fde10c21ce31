// HttpLine: one TCP connection to one etcd member, one POST at a time.
#pragma once

#include "rendezvous/etcd/cluster.h"
#include "runtime/base/time.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/message.hpp>
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
  struct Reply {
    int status = 0;    // 0: none came
    std::string body;  // or, without status, why none came
    bool in_time = true;
  };
  HttpLine(boost::asio::io_context& io, Endpoint endpoint, std::size_t max_bytes);

  const Endpoint& endpoint() const { return endpoint_; }
  // It was connected before; a failure may mean no more than that the member closed it since.
  bool used() const { return used_; }
  bool usable() const { return socket_.is_open() && keep_; }

  // `done` is called once, unless close() comes first; never from within.
  void post(const std::string& path, std::string body, Duration within,
            std::function<void(Reply reply)> done);
  // The same, for an answer without an end: `line` for each of its lines, then `done`.  `within` is
  // the limit up to the first line.  `line` may call close().
  void stream(const std::string& path, std::string body, Duration within,
              std::function<void(std::string_view line)> line,
              std::function<void(Reply reply)> done);
  void close();

 private:
  using Parser = boost::beast::http::response_parser<boost::beast::http::string_body>;
  void begin(const std::string& path, std::string body, Duration within,
             std::function<void(Reply reply)> done);
  void resolve();
  void connect(const boost::asio::ip::tcp::endpoint& to);
  void connect_any(const boost::asio::ip::tcp::resolver::results_type& found);
  void on_connected(const boost::system::error_code& failure);
  void write();
  void read();
  void read_some();
  void take_lines();
  void fail(const std::string& why, bool in_time = true);
  void finish(Reply reply);

  boost::asio::ip::tcp::socket socket_;
  boost::asio::ip::tcp::resolver resolver_;
  boost::asio::steady_timer timer_;
  Endpoint endpoint_;
  std::size_t max_bytes_;
  bool used_ = false;
  bool keep_ = true;  // the member did not say that it closes
  int turn_ = 0;      // of the exchange in hand: handlers of an older one do nothing
  Duration within_{};
  boost::beast::http::request<boost::beast::http::string_body> request_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  std::function<void(Reply reply)> done_;
  std::function<void(std::string_view line)> line_;
};

}  // namespace distrun::rendezvous::etcd
