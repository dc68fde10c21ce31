#include "rendezvous/etcd/gateway/http_line.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/error.hpp>

#include <algorithm>
#include <utility>

namespace distrun::rendezvous::etcd {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

namespace {

constexpr std::size_t kMaxError = 64UL * 1024;
constexpr std::size_t kMaxLine = 4UL * 1024 * 1024;

std::string head_and_body(const HttpLine::Post& post, const Endpoint& to) {
  std::string text = "POST " + post.path + " HTTP/1.1\r\nHost: " + to_text(to) +
                     "\r\nUser-Agent: distrun\r\nContent-Type: application/json\r\n";
  if (!post.token.empty()) text += "Authorization: " + post.token + "\r\n";
  text += "Content-Length: " + std::to_string(post.body.size()) + "\r\n\r\n";
  return text + post.body;
}

}  // namespace

HttpLine::HttpLine(asio::io_context& io, io::Resolver& resolver, std::shared_ptr<Target> to,
                   std::shared_ptr<const Tls> tls, std::size_t max_bytes)
    : io_(io),
      timer_(io),
      resolver_(resolver),
      to_(std::move(to)),
      tls_(std::move(tls)),
      max_bytes_(max_bytes) {}

void HttpLine::post(const Post& post, Limits limits, std::function<void(Reply reply)> done) {
  line_ = nullptr;
  begin(post, limits, std::move(done));
}

void HttpLine::stream(const Post& post, Limits limits,
                      std::function<void(std::string_view line)> line,
                      std::function<void(Reply reply)> done) {
  line_ = std::move(line);
  begin(post, limits, std::move(done));
}

void HttpLine::close() {
  ++turn_;
  done_ = nullptr;
  line_ = nullptr;
  timer_.cancel();
  if (link_) link_->close();
}

void HttpLine::begin(const Post& post, Limits limits, std::function<void(Reply reply)> done) {
  ++turn_;
  done_ = std::move(done);
  request_ = head_and_body(post, to_->endpoint);
  wait(limits);
  if (link_ && link_->is_open()) {
    used_ = true;
    return write();
  }
  link_ = std::make_shared<Link>(io_, resolver_, to_, tls_);
  link_->connect([self = shared_from_this(), turn = turn_, limits](const auto& trouble) {
    if (turn != self->turn_) return;
    if (trouble) return self->fail(*trouble);
    self->wait(limits);
    self->write();
  });
}

void HttpLine::wait(const Limits& limits) {
  timer_.expires_at(std::min(Clock::now() + limits.within, limits.by));
  timer_.async_wait([weak = weak_from_this(), turn = turn_](const error_code& ec) {
    const auto self = weak.lock();
    if (ec || !self || turn != self->turn_) return;
    self->fail({.why = "no answer in time"}, false);
  });
}

void HttpLine::write() {
  parser_.emplace();
  parser_->eager(true);
  if (line_) {
    parser_->body_limit(boost::none);
  } else {
    parser_->body_limit(max_bytes_);
  }
  buffer_.clear();
  link_->write(std::move(request_), [self = shared_from_this(), turn = turn_](const auto& trouble) {
    if (turn != self->turn_) return;
    if (trouble) return self->on_trouble(*trouble);
    self->read();
  });
}

void HttpLine::read() {
  link_->read(
      [self = shared_from_this(), turn = turn_](const auto& trouble, std::string_view bytes) {
        if (turn != self->turn_) return;
        if (trouble) return self->on_trouble(*trouble);
        self->take(bytes);
      });
}

void HttpLine::take(std::string_view bytes) {
  const std::size_t copied = asio::buffer_copy(buffer_.prepare(bytes.size()), asio::buffer(bytes));
  buffer_.commit(copied);
  while (buffer_.size() > 0 && !parser_->is_done()) {
    error_code ec;
    const std::size_t used = parser_->put(buffer_.data(), ec);
    buffer_.consume(used);
    if (ec == http::error::need_more) break;
    if (ec) return fail({.why = "its answer is no HTTP (" + ec.message() + ")"});
    if (used == 0) break;
  }
  const int turn = turn_;
  take_lines();
  if (turn != turn_) return;  // who heard a line has closed it
  if (parser_->is_done()) return answered();
  read();
}

void HttpLine::on_trouble(const Link::Trouble& trouble) {
  // An answer may end with the connection.
  error_code ec;
  if (trouble.ended && parser_ && parser_->got_some()) {
    parser_->put_eof(ec);
    keep_ = false;
    if (!ec && parser_->is_done()) return answered();
  }
  Link::Trouble said = trouble;
  if (trouble.ended && !tls_ && !used_) {  // so does an etcd that expects TLS
    said.why =
        "it closed the connection without an answer; if it speaks TLS, give etcds:// or, to "
        "an agent, --rdzv-conf protocol=https";
  }
  fail(said);
}

void HttpLine::answered() {
  keep_ = keep_ && parser_->get().keep_alive();
  Reply reply;
  reply.status = static_cast<int>(parser_->get().result_int());
  reply.body = std::move(parser_->get().body());
  finish(std::move(reply));
}

void HttpLine::take_lines() {
  if (!line_ || !parser_->is_header_done()) return;
  std::string& body = parser_->get().body();
  if (parser_->get().result_int() != 200) {
    if (body.size() > kMaxError) fail({.why = "an error without an end"});
    return;
  }
  const int turn = turn_;
  for (std::size_t end = body.find('\n'); end != std::string::npos; end = body.find('\n')) {
    timer_.cancel();
    const std::string line = body.substr(0, end);
    body.erase(0, end + 1);
    const auto hear = line_;  // who hears may close, and so take it away
    hear(line);
    if (turn != turn_) return;
  }
  if (body.size() > kMaxLine) fail({.why = "a line without an end"});
}

void HttpLine::fail(const Link::Trouble& trouble, bool in_time) {
  Reply reply;
  reply.body = trouble.why;
  reply.in_time = in_time;
  reply.hopeless = trouble.hopeless;
  link_->close();
  finish(std::move(reply));
}

void HttpLine::finish(Reply reply) {
  ++turn_;
  timer_.cancel();
  line_ = nullptr;
  if (const auto done = std::exchange(done_, nullptr)) done(std::move(reply));
}

}  // namespace distrun::rendezvous::etcd
