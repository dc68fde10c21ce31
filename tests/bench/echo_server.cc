// echo_server: sends back every byte it gets, one thread, one epoll. The least that a TCP server
// can do for a request, and so the measure of what a store may cost. Listens on a free port of
// 127.0.0.1, says "listening on 127.0.0.1:PORT" on standard error, and ends with its standard
// input.
#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <cstdio>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kEventsAtOnce = 64;

void watch(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
}

// False when the peer is gone. A peer that does not read makes us wait: it is a benchmark's client.
bool echo(int fd) {
  std::array<char, 65536> buffer;  // NOLINT: filling it first would be most of the work.
  const auto got = ::recv(fd, buffer.data(), buffer.size(), 0);
  if (got <= 0) return got < 0 && (errno == EINTR || errno == EAGAIN);
  for (ssize_t sent = 0; sent < got;) {
    const auto size = static_cast<std::size_t>(got - sent);
    const auto wrote = ::send(fd, buffer.data() + sent, size, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return false;
    sent += wrote;
  }
  return true;
}

void accept_one(int epoll, int listener) {
  const int fd = ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0) return;
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  watch(epoll, fd);
}

}  // namespace

int main() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (listener < 0 || ::bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(listener, 4096) != 0 ||
      ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("echo_server");
    return 1;
  }
  std::fprintf(stderr, "listening on 127.0.0.1:%d\n", ntohs(address.sin_port));

  const int epoll = ::epoll_create1(EPOLL_CLOEXEC);
  watch(epoll, listener);
  watch(epoll, STDIN_FILENO);
  std::vector<epoll_event> events(kEventsAtOnce);
  for (;;) {
    const int ready = ::epoll_wait(epoll, events.data(), kEventsAtOnce, -1);
    if (ready < 0 && errno != EINTR) return 1;
    for (int i = 0; i < ready; ++i) {
      const int fd = events[static_cast<std::size_t>(i)].data.fd;
      if (fd == STDIN_FILENO) return 0;
      if (fd == listener) {
        accept_one(epoll, listener);
      } else if (!echo(fd)) {
        ::close(fd);
      }
    }
  }
}
