#include "rendezvous/etcd/gateway/http_line.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/post.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/write.hpp>

#include <utility>

namespace distrun::rendezvous::etcd {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxLine = 4UL * 1024 * 1024;

}  // namespace

HttpLine::HttpLine(asio::io_context& io, Endpoint endpoint, std::size_t max_bytes)
    : socket_(io),
      resolver_(io),
      timer_(io),
      endpoint_(std::move(endpoint)),
      max_bytes_(max_bytes) {}

void HttpLine::post(const std::string& path, std::string body, Duration within,
                    std::function<void(Reply reply)> done) {
  line_ = nullptr;
  begin(path, std::move(body), within, std::move(done));
}

void HttpLine::stream(const std::string& path, std::string body, Duration within,
                      std::function<void(std::string_view line)> line,
                      std::function<void(Reply reply)> done) {
  line_ = std::move(line);
  begin(path, std::move(body), within, std::move(done));
}

void HttpLine::close() {
  ++turn_;
  done_ = nullptr;
  line_ = nullptr;
  timer_.cancel();
  resolver_.cancel();
  error_code ignored;
  socket_.close(ignored);
}

void HttpLine::begin(const std::string& path, std::string body, Duration within,
                     std::function<void(Reply reply)> done) {
  ++turn_;
  done_ = std::move(done);
  within_ = within;
  request_ = {http::verb::post, path, 11};
  request_.set(http::field::host, to_text(endpoint_));
  request_.set(http::field::user_agent, "distrun");
  request_.set(http::field::content_type, "application/json");
  request_.body() = std::move(body);
  request_.prepare_payload();
  timer_.expires_after(within);
  timer_.async_wait([weak = weak_from_this(), turn = turn_](const error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self || turn != self->turn_) return;
    self->fail("no answer within " + duration_text(self->within_), false);
  });
  if (socket_.is_open()) {
    used_ = true;
    write();
  } else {
    resolve();
  }
}

void HttpLine::resolve() {
  error_code not_an_address;
  const auto address = asio::ip::make_address(endpoint_.host, not_an_address);
  if (!not_an_address) return connect({address, endpoint_.port});
  resolver_.async_resolve(
      endpoint_.host, std::to_string(endpoint_.port),
      [self = shared_from_this(), turn = turn_](const error_code& ec,
                                                const tcp::resolver::results_type& found) {
        if (turn != self->turn_) return;
        if (ec) return self->fail("the name cannot be looked up (" + ec.message() + ")");
        self->connect_any(found);
      });
}

void HttpLine::connect(const tcp::endpoint& to) {
  socket_.async_connect(to, [self = shared_from_this(), turn = turn_](const error_code& ec) {
    if (turn == self->turn_) self->on_connected(ec);
  });
}

void HttpLine::connect_any(const tcp::resolver::results_type& found) {
  asio::async_connect(
      socket_, found,
      [self = shared_from_this(), turn = turn_](const error_code& ec, const tcp::endpoint&) {
        if (turn == self->turn_) self->on_connected(ec);
      });
}

void HttpLine::on_connected(const error_code& failure) {
  if (failure) return fail(failure.message());
  error_code ignored;
  socket_.set_option(tcp::no_delay(true), ignored);
  socket_.set_option(asio::socket_base::keep_alive(true), ignored);
  write();
}

void HttpLine::write() {
  http::async_write(socket_, request_,
                    [self = shared_from_this(), turn = turn_](const error_code& ec, std::size_t) {
                      if (turn != self->turn_) return;
                      if (ec) return self->fail("the connection broke (" + ec.message() + ")");
                      self->parser_.emplace();
                      if (self->line_) {
                        self->parser_->body_limit(boost::none);
                        self->read_some();
                      } else {
                        self->parser_->body_limit(self->max_bytes_);
                        self->read();
                      }
                    });
}

void HttpLine::read() {
  http::async_read(socket_, buffer_, *parser_,
                   [self = shared_from_this(), turn = turn_](const error_code& ec, std::size_t) {
                     if (turn != self->turn_) return;
                     if (ec) return self->fail("the connection broke (" + ec.message() + ")");
                     self->keep_ = self->parser_->get().keep_alive();
                     Reply reply;
                     reply.status = static_cast<int>(self->parser_->get().result_int());
                     reply.body = std::move(self->parser_->get().body());
                     self->finish(std::move(reply));
                   });
}

void HttpLine::read_some() {
  http::async_read_some(
      socket_, buffer_, *parser_,
      [self = shared_from_this(), turn = turn_](const error_code& ec, std::size_t) {
        if (turn != self->turn_) return;
        if (!ec) {
          self->take_lines();
          if (turn != self->turn_) return;  // who heard a line has closed it
        }
        if (!ec && !self->parser_->is_done()) return self->read_some();
        if (ec) return self->fail("the connection broke (" + ec.message() + ")");
        Reply reply;
        reply.status = static_cast<int>(self->parser_->get().result_int());
        reply.body = self->parser_->get().body();
        self->finish(std::move(reply));
      });
}

void HttpLine::take_lines() {
  if (!parser_->is_header_done() || parser_->get().result_int() != 200) return;
  std::string& body = parser_->get().body();
  const int turn = turn_;
  for (std::size_t end = body.find('\n'); end != std::string::npos; end = body.find('\n')) {
    timer_.cancel();
    const std::string line = body.substr(0, end);
    body.erase(0, end + 1);
    line_(line);
    if (turn != turn_) return;
  }
  if (body.size() > kMaxLine) fail("a line without an end");
}

void HttpLine::fail(const std::string& why, bool in_time) {
  error_code ignored;
  socket_.close(ignored);
  resolver_.cancel();
  Reply reply;
  reply.body = why;
  reply.in_time = in_time;
  finish(std::move(reply));
}

void HttpLine::finish(Reply reply) {
  ++turn_;
  timer_.cancel();
  line_ = nullptr;
  if (const auto done = std::exchange(done_, nullptr)) done(std::move(reply));
}

}  // namespace distrun::rendezvous::etcd
