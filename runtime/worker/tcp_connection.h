// A blocking TCP connection whose every step has a deadline.  Signals do not end a wait.
//
// Names are resolved only if the host is not an address; every address it has is tried.
// Not thread-safe.
#pragma once

#include "runtime/base/result.h"
#include "runtime/base/time.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace distrun {

class TcpConnection {
 public:
  // One try.  Errors: not_found (no such host), timeout, io (refused, unreachable…).
  static Result<TcpConnection> connect(const std::string& host, std::uint16_t port,
                                       TimePoint deadline);

  TcpConnection() = default;
  ~TcpConnection() { close(); }
  TcpConnection(TcpConnection&& other) noexcept;
  TcpConnection& operator=(TcpConnection&& other) noexcept;

  bool is_open() const { return fd_ >= 0; }
  void close();

  // Errors: timeout; closed (the other side is gone).
  Result<void> send(std::string_view bytes, TimePoint deadline);
  // At least one byte, at most `room`.
  Result<std::size_t> receive(char* to, std::size_t room, TimePoint deadline);

  // This machine's end: "10.0.0.5", "::1".
  std::string local_address() const;

 private:
  explicit TcpConnection(int fd) : fd_(fd) {}
  Result<void> wait_for(short events, TimePoint deadline) const;

  int fd_ = -1;
};

}  // namespace distrun
