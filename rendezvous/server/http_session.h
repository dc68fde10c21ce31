// HttpSession: one GET or HEAD, one answer, and the connection is closed.
//
// Reads at most 8 KiB of request line and header, within ten seconds; a body is not read.
#pragma once

#include "rendezvous/server/connection.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace distrun::rendezvous {

struct HttpAnswer {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
  std::string location{};  // with a status of 3xx
};

// `target`: a path without its query.
using HttpPages = std::function<HttpAnswer(std::string_view target)>;

// Takes the connection over; what has been read of it is `first`.
void serve_http(const std::shared_ptr<Connection>& connection, std::string_view first,
                HttpPages pages);

}  // namespace distrun::rendezvous
