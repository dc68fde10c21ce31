#include "runtime/worker/tcp_connection.h"

#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <optional>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

namespace distrun {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<Addresses> resolve(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_family = AF_UNSPEC;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (::getaddrinfo(host.c_str(), service.c_str(), &hints, &found) == 0)
    return Addresses(found, &::freeaddrinfo);
  hints.ai_flags = AI_NUMERICSERV;
  const int failure = ::getaddrinfo(host.c_str(), service.c_str(), &hints, &found);
  if (failure != 0)
    return Error{Errc::not_found, "host \"" + host + "\": " + ::gai_strerror(failure)};
  return Addresses(found, &::freeaddrinfo);
}

std::string address_text(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "?";
  ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  std::string result = text;
  if (result.starts_with("::ffff:")) result.erase(0, 7);
  return result;
}

timespec until(TimePoint deadline) {
  const auto left = std::max(deadline - Clock::now(), Duration::zero());
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(left);
  timespec result{};
  // A day at a time: poll has no word for ever, and the caller asks again.
  result.tv_sec = std::min<std::int64_t>(seconds.count(), 86'400);
  result.tv_nsec = static_cast<long>(std::chrono::nanoseconds(left - seconds).count());
  return result;
}

}  // namespace

TcpConnection::TcpConnection(TcpConnection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

TcpConnection& TcpConnection::operator=(TcpConnection&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

void TcpConnection::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<TcpConnection> TcpConnection::connect(const std::string& host, std::uint16_t port,
                                             TimePoint deadline) {
  const auto addresses = resolve(host, port);
  if (!addresses) return addresses.error();
  Error last{Errc::not_found, "host \"" + host + "\" has no address"};
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    const std::string where =
        "connect to " + address_text(at->ai_addr, at->ai_addrlen) + " port " + std::to_string(port);
    TcpConnection connection(
        ::socket(at->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (connection.fd_ < 0) {
      last = os_error("socket", errno);
      continue;
    }
    int failure = 0;
    if (::connect(connection.fd_, at->ai_addr, at->ai_addrlen) != 0) {
      failure = errno;
      if (failure == EINPROGRESS || failure == EINTR) {
        const auto writable = connection.wait_for(POLLOUT, deadline);
        if (!writable) return Error{writable.error().code, where + ": " + writable.error().detail};
        socklen_t size = sizeof failure;
        ::getsockopt(connection.fd_, SOL_SOCKET, SO_ERROR, &failure, &size);
      }
    }
    if (failure == 0) {
      const int on = 1;
      ::setsockopt(connection.fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      return connection;
    }
    last = os_error(where, failure);
  }
  return last;
}

Result<void> TcpConnection::wait_for(short events, TimePoint deadline) const {
  for (;;) {
    pollfd entry{fd_, events, 0};
    const timespec left = until(deadline);
    const int ready = ::ppoll(&entry, 1, &left, nullptr);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return os_error("poll", errno);
    if (Clock::now() >= deadline) return Error{Errc::timeout, "no answer in time"};
  }
}

Result<void> TcpConnection::send(std::string_view bytes, TimePoint deadline) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_for(POLLOUT, deadline); !ready) return ready.error();
    } else if (errno != EINTR) {
      return Error{Errc::closed, std::generic_category().message(errno)};
    }
  }
  return {};
}

Result<std::size_t> TcpConnection::receive(char* to, std::size_t room, TimePoint deadline) {
  for (;;) {
    const ssize_t n = ::recv(fd_, to, room, 0);
    if (n > 0) return static_cast<std::size_t>(n);
    if (n == 0) return Error{Errc::closed, "the server closed the connection"};
    if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (auto ready = wait_for(POLLIN, deadline); !ready) return ready.error();
    } else if (errno != EINTR) {
      return Error{Errc::closed, std::generic_category().message(errno)};
    }
  }
}

std::string TcpConnection::local_address() const {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "";
  return address_text(reinterpret_cast<const sockaddr*>(&address), size);
}

}  // namespace distrun
