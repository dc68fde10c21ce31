#include "runtime/worker/shm/unix_socket.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>

namespace distrun::shm {
namespace {

[[noreturn]] void fail(const char* what, int error = errno) {
  throw std::system_error(error, std::generic_category(), what);
}

struct Address {
  sockaddr_un address{};
  socklen_t size = 0;
};

Address address_of(const std::string& name) {
  Address result;
  result.address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof result.address.sun_path) fail("name of a socket", ENAMETOOLONG);
  std::memcpy(result.address.sun_path + 1, name.data(), name.size());  // after a zero: abstract
  result.size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

Fd make_socket() {
  Fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) fail("socket(AF_UNIX)");
  return fd;
}

// False: `until` has passed.
bool wait_for(const Fd& fd, short events, TimePoint until) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - Clock::now()).count();
    pollfd polled{fd.get(), events, 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::clamp<long long>(left, 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) fail("poll");
    if (ready == 0 && Clock::now() >= until) return false;
  }
}

}  // namespace

std::string random_hex() {
  std::array<unsigned char, 16> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    fail("getrandom");
  std::string text;
  for (const unsigned byte : bytes)
    for (const unsigned digit : {byte / 16, byte % 16}) text += "0123456789abcdef"[digit];
  return text;
}

Fd listen_unix(const std::string& name, int backlog) {
  Fd fd = make_socket();
  const Address at = address_of(name);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0) fail("bind");
  if (::listen(fd.get(), backlog) != 0) fail("listen");
  return fd;
}

Fd connect_unix(const std::string& name, TimePoint deadline) {
  Fd fd = make_socket();
  const Address at = address_of(name);
  while (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&at.address), at.size) != 0) {
    if (errno == EINTR) continue;
    if (errno != EAGAIN) fail("connect");  // EAGAIN: its queue is full
    if (Clock::now() >= deadline) fail("connect", ETIMEDOUT);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return fd;
}

std::optional<Fd> accept_unix(const Fd& listener, TimePoint until) {
  while (wait_for(listener, POLLIN, until)) {
    Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return fd;
    if (errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) fail("accept");
  }
  return std::nullopt;
}

unsigned uid_of_peer(const Fd& socket) {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) fail("SO_PEERCRED");
  return who.uid;
}

void send_message(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds,
                  TimePoint deadline) {
  iovec data{const_cast<std::byte*>(bytes.data()), bytes.size()};
  std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> room{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (!fds.empty()) {
    const std::size_t size = fds.size_bytes();
    if (fds.size() > kMaxFds) fail("sending descriptors", E2BIG);
    message.msg_control = room.data();
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), fds.data(), size);
  }
  while (::sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
    if (errno == EINTR) continue;
    // Only so many descriptors of a user may be on their way at once.
    const bool too_many = errno == ETOOMANYREFS;
    if (!too_many && errno != EAGAIN && errno != ENOBUFS) fail("sendmsg");
    if (Clock::now() >= deadline) fail("sendmsg", ETIMEDOUT);
    if (too_many)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else
      static_cast<void>(wait_for(socket, POLLOUT,
                                 std::min(deadline, Clock::now() + std::chrono::milliseconds(20))));
  }
}

std::size_t receive_message(const Fd& socket, std::span<std::byte> room, std::vector<Fd>& fds,
                            TimePoint deadline) {
  iovec data{room.data(), room.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxFds * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t size = 0;
  while ((size = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC)) < 0) {
    if (errno == ECONNRESET) return 0;
    if (errno != EAGAIN && errno != EINTR) fail("recvmsg");
    if (!wait_for(socket, POLLIN, deadline)) fail("recvmsg", ETIMEDOUT);
  }
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= header->cmsg_len - CMSG_LEN(0);
         at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header) + at, sizeof fd);
      fds.emplace_back(fd);
    }
  }
  if ((message.msg_flags & MSG_TRUNC) != 0) fail("recvmsg", EMSGSIZE);
  if ((message.msg_flags & MSG_CTRUNC) != 0) fail("receiving descriptors", EMFILE);
  return static_cast<std::size_t>(size);
}

}  // namespace distrun::shm
