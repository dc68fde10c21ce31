#include "rendezvous/server/http_session.h"

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/empty_body.hpp>
#include <boost/beast/http/parser.hpp>

#include <chrono>
#include <limits>
#include <utility>

namespace distrun::rendezvous {
namespace {

namespace http = boost::beast::http;

constexpr std::uint32_t kMaxHeader = 8 * 1024;
constexpr Duration kRequestWithin = std::chrono::seconds(10);
constexpr Duration kReadWithin = std::chrono::seconds(30);

std::string_view reason(int status) {
  return {http::obsolete_reason(static_cast<http::status>(status)).data(),
          http::obsolete_reason(static_cast<http::status>(status)).size()};
}

class HttpSession : public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(std::shared_ptr<Connection> connection, HttpPages pages)
      : connection_(std::move(connection)), pages_(std::move(pages)) {
    parser_.header_limit(kMaxHeader);
  }

  void on_bytes(std::string_view bytes) {
    text_ += bytes;
    boost::beast::error_code failure;
    const std::size_t used = parser_.put(boost::asio::buffer(text_), failure);
    text_.erase(0, used);
    if (parser_.is_header_done()) return answer();
    if (failure && failure != http::error::need_more)
      return write({.status = 400, .body = "not an HTTP request: " + failure.message() + "\n"});
    if (text_.size() > kMaxHeader)
      write({.status = 400, .body = "not an HTTP request: header limit exceeded\n"});
  }

 private:
  void answer() {
    const auto& request = parser_.get();
    head_ = request.method() == http::verb::head;
    if (request.method() != http::verb::get && !head_)
      return write({.status = 405, .body = "only GET and HEAD are served\n"});
    const std::string_view target(request.target().data(), request.target().size());
    write(pages_(target.substr(0, target.find('?'))));
  }

  void write(const HttpAnswer& answer) {
    std::string bytes = "HTTP/1.1 " + std::to_string(answer.status) + " ";
    bytes += reason(answer.status);
    bytes += "\r\nContent-Type: " + answer.content_type;
    bytes += "\r\nContent-Length: " + std::to_string(answer.body.size());
    if (!answer.location.empty()) bytes += "\r\nLocation: " + answer.location;
    if (answer.status == 405) bytes += "\r\nAllow: GET, HEAD";
    bytes += "\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n";
    if (!head_) bytes += answer.body;
    connection_->send(bytes, std::numeric_limits<std::size_t>::max());
    connection_->finish(kReadWithin);
  }

  std::shared_ptr<Connection> connection_;
  HttpPages pages_;
  http::request_parser<http::empty_body> parser_;
  std::string text_;  // not parsed yet
  bool head_ = false;
};

}  // namespace

void serve_http(const std::shared_ptr<Connection>& connection, std::string_view first,
                HttpPages pages) {
  const auto session = std::make_shared<HttpSession>(connection, std::move(pages));
  connection->set_deadline(kRequestWithin, "no whole request within 10 s");
  // The connection keeps the session; finish() and close() let go of it.
  connection->set_callbacks(
      {.received = [session](std::string_view bytes) { session->on_bytes(bytes); }, .lost = {}});
  session->on_bytes(first);
}

}  // namespace distrun::rendezvous
