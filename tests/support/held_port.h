// HeldPort: a loopback port that nobody listens on and that nobody else is given, as long as this
// lives.  A listener that sets SO_REUSEADDR, as ours do, may have it beside this; connections to it
// are refused until then.  A port that is only looked for and let go again may be another process's
// by the time it is used.
#pragma once

#include <arpa/inet.h>
#include <cerrno>
#include <cstdint>
#include <netinet/in.h>
#include <stdexcept>
#include <sys/socket.h>
#include <unistd.h>

namespace distrun::test {

class HeldPort {
 public:
  HeldPort() {
    for (int tries = 0; tries < 100; ++tries) {
      sockaddr_in any{};
      any.sin_family = AF_INET;
      any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      socklen_t size = sizeof any;
      v4_ = socket_of(AF_INET);
      if (::bind(v4_, reinterpret_cast<sockaddr*>(&any), size) == 0 &&
          ::getsockname(v4_, reinterpret_cast<sockaddr*>(&any), &size) == 0) {
        port_ = ntohs(any.sin_port);
        sockaddr_in6 same{};
        same.sin6_family = AF_INET6;
        same.sin6_addr = in6addr_loopback;
        same.sin6_port = any.sin_port;
        v6_ = socket_of(AF_INET6);
        // Without IPv6 there is none to be held.
        if (::bind(v6_, reinterpret_cast<sockaddr*>(&same), sizeof same) == 0 ||
            errno != EADDRINUSE)
          return;
      }
      release();
    }
    throw std::runtime_error("no port is free on 127.0.0.1 and ::1");
  }
  ~HeldPort() { release(); }
  HeldPort(const HeldPort&) = delete;
  HeldPort& operator=(const HeldPort&) = delete;

  std::uint16_t port() const { return port_; }

 private:
  static int socket_of(int family) {
    const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int yes = 1;
    if (fd < 0) return fd;
    (void)::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    if (family == AF_INET6) (void)::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
    return fd;
  }
  void release() {
    for (int* fd : {&v4_, &v6_}) {
      if (*fd >= 0) ::close(*fd);
      *fd = -1;
    }
  }

  int v4_ = -1;
  int v6_ = -1;
  std::uint16_t port_ = 0;
};

}  // namespace distrun::test
