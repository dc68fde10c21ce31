#include "launcher/http_get.h"

#include "launcher/endpoint.h"
#include "launcher/text.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace distrun::launcher {
namespace {

constexpr std::size_t kMaxAddresses = 8;

class Socket {
 public:
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() {
    if (fd_ >= 0) ::close(fd_);
  }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

struct FreeAddresses {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

std::string endpoint_text(const std::string& host, std::uint16_t port) {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string numeric(const addrinfo& address, std::uint16_t port) {
  char host[NI_MAXHOST] = "?";
  ::getnameinfo(address.ai_addr, address.ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
  return endpoint_text(host, port);
}

// False: the deadline has passed.
bool wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() < 0) return false;
    pollfd waited{fd, events, 0};
    const int n = ::poll(&waited, 1, static_cast<int>(left.count()) + 1);
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
  }
}

// Connected, or an errno.
std::pair<Socket, int> connect_to(const addrinfo& address, Duration within) {
  Socket socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.get() < 0) return {std::move(socket), errno};
  if (::connect(socket.get(), address.ai_addr, address.ai_addrlen) == 0) {
    return {std::move(socket), 0};
  }
  if (errno != EINPROGRESS) return {std::move(socket), errno};
  if (!wait_for(socket.get(), POLLOUT, Clock::now() + within)) {
    return {std::move(socket), ETIMEDOUT};
  }
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return {std::move(socket), error};
}

Error no_coordinator(const std::string& where, const std::string& what) {
  return Error{Errc::protocol,
               where + ": " + what + ", so it is no coordinator of distrun; is the port right?"};
}

Result<std::string> exchange(const Socket& socket, const std::string& where,
                             const std::string& request, const HttpLimits& limits) {
  const TimePoint deadline = Clock::now() + limits.answer;
  const auto sent = ::send(socket.get(), request.data(), request.size(), MSG_NOSIGNAL);
  if (sent != static_cast<ssize_t>(request.size())) {
    return Error{Errc::closed, where + ": took the connection and closed it at once"};
  }
  std::string answer;
  for (;;) {
    std::size_t before = answer.size();
    if (before > limits.bytes) return Error{Errc::limit, where + ": its answer has no end"};
    answer.resize(before + 65'536);
    const ssize_t n = ::recv(socket.get(), answer.data() + before, 65'536, 0);
    const int error = errno;
    answer.resize(before + static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
    if (n == 0) return answer;
    if (n > 0 || error == EINTR) continue;
    if (error != EAGAIN) {
      return no_coordinator(
          where, std::string("took the connection and broke it (") + std::strerror(error) + ")");
    }
    if (!wait_for(socket.get(), POLLIN, deadline)) {
      std::string why = where;
      if (!answer.empty()) {
        why.append(": its answer was not complete within ").append(duration_text(limits.answer));
        return Error{Errc::timeout, std::move(why)};
      }
      why.append(": took the connection but did not answer within ")
          .append(duration_text(limits.answer))
          .append("; it is overloaded or stopped, or no coordinator of distrun");
      return Error{Errc::timeout, std::move(why)};
    }
  }
}

Result<std::string> body_of(const std::string& where, const std::string& path,
                            const std::string& answer) {
  if (answer.empty()) return no_coordinator(where, "closed the connection without an answer");
  const std::size_t end = answer.find("\r\n\r\n");
  if (!answer.starts_with("HTTP/1.") || end == std::string::npos) {
    return no_coordinator(where, "answered " + quote(answer.substr(0, 40)));
  }
  const std::string status = answer.substr(0, answer.find("\r\n"));
  if (status.find(" 503 ") != std::string::npos) {  // one of several, and none leads
    return Error{Errc::closed, where + ": " + printable(trim(answer.substr(end + 4)))};
  }
  if (status.substr(std::min<std::size_t>(status.size(), 8)).rfind(" 200", 0) != 0) {
    return no_coordinator(where, "has no page " + path + " (" + printable(status) + ")");
  }
  return answer.substr(end + 4);
}

// Who stands by says where the coordinator is.
std::optional<Endpoint> place_in(const std::string& answer) {
  if (answer.find(" 307 ") != 8) return std::nullopt;
  constexpr std::string_view kBegin = "\r\nLocation: http://";
  const std::size_t at = answer.find(kBegin);
  if (at == std::string::npos) return std::nullopt;
  const std::string_view rest = std::string_view(answer).substr(at + kBegin.size());
  const auto place = parse_endpoint(rest.substr(0, rest.find_first_of("/\r")));
  return place && place->port ? std::optional(*place) : std::nullopt;
}

}  // namespace

Result<std::string> http_get(const std::string& host, std::uint16_t port, const std::string& path,
                             const HttpLimits& limits) {
  const std::string endpoint = endpoint_text(host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
  if (error != 0) {
    return Error{Errc::not_found,
                 endpoint + ": the name " + quote(host) + " cannot be looked up (" +
                     (error == EAI_SYSTEM ? std::strerror(errno) : ::gai_strerror(error)) + ")"};
  }
  const Addresses addresses(list);

  std::vector<std::string> tried;
  bool refused = true;
  for (const addrinfo* a = list; a != nullptr && tried.size() < kMaxAddresses; a = a->ai_next) {
    const auto [socket, problem] = connect_to(*a, limits.connect);
    const std::string where = numeric(*a, port);
    if (problem == 0) {
      std::string request = "GET ";
      request.append(path).append(" HTTP/1.1\r\nHost: ").append(endpoint);
      request += "\r\nUser-Agent: distrun/" DISTRUN_VERSION "\r\nConnection: close\r\n\r\n";
      const auto answer = exchange(socket, where, request, limits);
      if (!answer) return answer.error();
      const auto elsewhere = place_in(*answer);
      if (elsewhere && limits.hops > 0) {
        HttpLimits rest = limits;
        --rest.hops;
        return http_get(elsewhere->host, *elsewhere->port, path, rest);
      }
      return body_of(where, path, *answer);
    }
    refused = refused && problem == ECONNREFUSED;
    tried.push_back(where + ": " +
                    (problem == ETIMEDOUT ? "no answer within " + duration_text(limits.connect)
                                          : std::strerror(problem)));
  }
  const std::vector<std::string_view> views(tried.begin(), tried.end());
  return Error{Errc::closed,
               join(views, ", ") + (refused ? "; nothing listens there: is the job's coordinator "
                                              "running, and is this its port?"
                                            : "; is the address right, and does a firewall let "
                                              "this port through?")};
}

}  // namespace distrun::launcher
