// Messages with file descriptors between processes of one host, over AF_UNIX sockets in the
// abstract namespace: a name that is no file, and that ends with its socket.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/shm/fd.h"

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace distrun::shm {

// 32 digits that nobody can guess.  Throws std::system_error.
std::string random_hex();

// All throw std::system_error; past the deadline its code is ETIMEDOUT.
Fd listen_unix(const std::string& name, int backlog);
Fd connect_unix(const std::string& name, TimePoint deadline);
// nullopt: nobody has come by then.
std::optional<Fd> accept_unix(const Fd& listener, TimePoint until);
// The user at the other end.
unsigned uid_of_peer(const Fd& socket);

// One message, whole, with `fds` beside it; at most kMaxFds.
inline constexpr std::size_t kMaxFds = 250;
void send_message(const Fd& socket, std::span<const std::byte> bytes, std::span<const int> fds,
                  TimePoint deadline);
// Into `room`, as much as comes, and its descriptors.  0: the other end has closed.  A message that
// is larger, or whose descriptors this process may not have, is an error (EMSGSIZE, EMFILE).
std::size_t receive_message(const Fd& socket, std::span<std::byte> room, std::vector<Fd>& fds,
                            TimePoint deadline);

}  // namespace distrun::shm
