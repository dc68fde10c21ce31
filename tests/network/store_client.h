// A client of the store for tests: a plain blocking socket that sends exactly the bytes it is told
// to and whose every wait ends.
#pragma once

#include "runtime/wire/tcpstore.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstdint>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

namespace distrun::rendezvous {

class StoreClient {
 public:
  static constexpr int kDeadlineMs = 60'000;

  explicit StoreClient(std::uint16_t port, const char* address = "127.0.0.1") {
    addrinfo hints{};
    hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(address, std::to_string(port).c_str(), &hints, &found) != 0) return;
    fd_ = ::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    connected_ = ::connect(fd_, found->ai_addr, found->ai_addrlen) == 0;
    ::freeaddrinfo(found);
  }
  ~StoreClient() {
    if (fd_ >= 0) ::close(fd_);
  }
  StoreClient(StoreClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), connected_(other.connected_) {}
  StoreClient& operator=(StoreClient&&) = delete;

  int fd() const { return fd_; }
  bool connected() const { return connected_; }
  void no_more_to_send() { ::shutdown(fd_, SHUT_WR); }

  // False: the server has closed the connection, or does not read in time.
  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      if (!ready(POLLOUT, kDeadlineMs)) return false;
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n < 0 && errno == EAGAIN) continue;
      if (n < 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }
  bool ask(wire::tcpstore::Op op, std::initializer_list<std::string_view> args,
           std::int64_t number = 0) {
    return send(request(op, args, number));
  }
  // Of the newest generation; whoever uses it says hello first.
  static std::string request(wire::tcpstore::Op op, std::initializer_list<std::string_view> args,
                             std::int64_t number = 0) {
    const std::vector<std::string_view> all(args);
    return *wire::tcpstore::encode_request(wire::tcpstore::Generation::g8,
                                           {.op = op, .args = all, .number = number});
  }
  void hello() { EXPECT_TRUE(send(wire::tcpstore::encode_hello(wire::tcpstore::Generation::g8))); }

  // Exactly n bytes; fewer: the server closed the connection or the time is over.
  std::string receive(std::size_t n) {
    std::string bytes(n, '\0');
    std::size_t have = 0;
    while (have < n && ready(POLLIN, kDeadlineMs)) {
      const ssize_t got = ::recv(fd_, bytes.data() + have, n - have, 0);
      if (got <= 0) break;
      have += static_cast<std::size_t>(got);
    }
    bytes.resize(have);
    return bytes;
  }
  std::string receive_blob() {
    std::uint64_t size = 0;
    const std::string length = receive(sizeof size);
    if (length.size() < sizeof size) return "(closed)";
    length.copy(reinterpret_cast<char*>(&size), sizeof size);
    return receive(size);
  }
  std::int64_t receive_number() {
    std::int64_t number = -1;
    const std::string bytes = receive(sizeof number);
    EXPECT_EQ(bytes.size(), sizeof number);
    bytes.copy(reinterpret_cast<char*>(&number), bytes.size());
    return number;
  }
  bool is_closed() {
    char byte = 0;
    return ready(POLLIN, kDeadlineMs) && ::recv(fd_, &byte, 1, 0) <= 0;
  }
  // There is something to receive, or the end.
  bool has_something() { return ready(POLLIN, 0); }
  // Nothing came for a short while.
  bool hears_nothing() { return !ready(POLLIN, 50); }

 private:
  bool ready(short events, int timeout_ms) {
    pollfd poll{fd_, events, 0};
    return ::poll(&poll, 1, timeout_ms) > 0;
  }

  int fd_ = -1;
  bool connected_ = false;
};

}  // namespace distrun::rendezvous
