// ScriptedMember: something that speaks HTTP where a member of etcd should be, and answers as the
// test says.  For tests of the gateway's client.
#pragma once

#include <arpa/inet.h>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <netinet/in.h>
#include <string>
#include <string_view>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace distrun::rendezvous::etcd {

struct Asked {
  std::string path;
  std::string head;
  std::string body;
};
struct Said {
  std::string bytes;    // empty: nothing, for ever
  bool closes = false;  // afterwards
  std::string more{};   // said again and again, until the client has closed
};

inline Said http(int status, const std::string& body) {
  return {.bytes = "HTTP/1.1 " + std::to_string(status) +
                   " Any\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body};
}

class ScriptedMember {
 public:
  using Script = std::function<Said(const Asked& asked)>;

  explicit ScriptedMember(Script script) : script_(std::move(script)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in here{};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof here;
    if (::bind(listener_, reinterpret_cast<sockaddr*>(&here), size) != 0 ||
        ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&here), &size) != 0)
      std::abort();
    port_ = ntohs(here.sin_port);
    threads_.emplace_back([this] { accept_all(); });
  }
  ~ScriptedMember() {
    over_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    threads_.front().join();
    {
      const std::lock_guard lock(mutex_);
      for (const int socket : sockets_) ::shutdown(socket, SHUT_RDWR);
    }
    for (std::size_t i = 1; i < threads_.size(); ++i) threads_[i].join();
    ::close(listener_);
    for (const int socket : sockets_) ::close(socket);
  }
  ScriptedMember(const ScriptedMember&) = delete;
  ScriptedMember& operator=(const ScriptedMember&) = delete;

  std::uint16_t port() const { return port_; }
  int asked() const { return asked_; }

 private:
  void accept_all() {
    while (!over_) {
      const int socket = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (socket < 0) return;
      const std::lock_guard lock(mutex_);
      sockets_.push_back(socket);
      threads_.emplace_back([this, socket] { serve(socket); });
    }
  }
  void serve(int socket) {
    std::string in;
    for (;;) {
      const std::size_t head = in.find("\r\n\r\n");
      const std::size_t length =
          head == std::string::npos
              ? 0
              : std::strtoul(in.c_str() + in.find("Length: ") + 8, nullptr, 10);
      if (head == std::string::npos || in.size() < head + 4 + length) {
        char bytes[4096];
        const ssize_t got = ::recv(socket, bytes, sizeof bytes, 0);
        if (got <= 0) return;
        in.append(bytes, static_cast<std::size_t>(got));
        continue;
      }
      ++asked_;
      const std::size_t path = in.find(' ') + 1;
      const Said said = script_({in.substr(path, in.find(' ', path) - path), in.substr(0, head),
                                 in.substr(head + 4, length)});
      in.erase(0, head + 4 + length);
      bool taken = send(socket, said.bytes);
      while (taken && !said.more.empty() && !over_) taken = send(socket, said.more);
      if (said.closes) ::shutdown(socket, SHUT_RDWR);
    }
  }
  static bool send(int socket, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  Script script_;  // in the threads, one at a time only if there is one connection
  int listener_ = -1;
  std::uint16_t port_ = 0;
  std::atomic<bool> over_ = false;
  std::atomic<int> asked_ = 0;
  std::mutex mutex_;
  std::vector<int> sockets_;
  std::vector<std::thread> threads_;  // the first accepts
};

}  // namespace distrun::rendezvous::etcd
