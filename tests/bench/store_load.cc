// store_load PORT PROTOCOL OPERATION CLIENTS SECONDS: drives a store on 127.0.0.1 and prints what
// it did.
//
//   PROTOCOL   g0 | g4 (see store_bytes.h) | echo: the same requests to an echo server
//   OPERATION  get       GET; reply: the value
//              wait_get  WAIT, its reply, then GET: what PyTorch's client does for one get()
//              get16     16 GETs in one write, counted as 16: the server's own share shows, as the
//                        kernel's is paid once for all of them
//              set       SET and, in the same write, CHECK of the same key, whose reply of one byte
//                        proves that the SET was carried out (a SET itself is never answered)
//              release   all clients WAIT on one key, one more client sets it
//
// For the first four: one thread, one epoll; each client has its own key and one request on its
// way, and sends the next one when the reply is there (a closed loop). Keys have 16 bytes,
// values 64. An operation is counted when its last reply has come and was right. Prints
//   operations seconds errors
// For `release`, SECONDS is the limit for the whole. Prints
//   released errors connect_ms release_ms total_ms
// where connect_ms ends when the server has every WAIT (proved by the reply to a CHECK sent behind
// it), release_ms is from the SET until the last client was released, and total_ms from the first
// connect.
#include "tests/bench/store_bytes.h"

#include <arpa/inet.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string>
#include <string_view>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace {

using distrun::bench::StoreBytes;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;
constexpr std::size_t kValueSize = 64;
constexpr std::chrono::seconds kPatience{10};  // To get ready, and for any reply at all.

// One request and the reply that must follow.
struct Step {
  std::string request;
  std::string reply;
};

struct Client {
  int fd = -1;
  std::vector<Step> steps;
  std::size_t step = 0;
  std::size_t received = 0;  // Bytes of this step's reply so far.
};

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "store_load: %s: %s\n", what, std::strerror(errno));
  std::exit(1);
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) fail("socket");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) fail("connect");
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return fd;
}

// Requests are far smaller than a socket's buffer, so a short write is an error.
bool send_all(int fd, std::string_view bytes) {
  if (bytes.empty()) return true;
  const auto sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  return sent == static_cast<ssize_t>(bytes.size());
}

std::string key_of(std::size_t client) {
  std::array<char, 17> text{};
  std::snprintf(text.data(), text.size(), "/bench/%09zu", client);
  return text.data();
}

constexpr int kPipelined = 16;

std::vector<Step> steps_of(std::string_view operation, const StoreBytes& bytes,
                           std::size_t client) {
  const auto key = key_of(client);
  const std::string value(kValueSize, static_cast<char>('a' + client % 26));
  const std::string ready(1, distrun::bench::kReady);
  const std::string released(1, distrun::bench::kReleased);
  const Step get{bytes.get(key), StoreBytes::blob(value)};
  if (operation == "get") return {get};
  if (operation == "get16") {
    Step all;
    for (int i = 0; i < kPipelined; ++i) {
      all.request += get.request;
      all.reply += get.reply;
    }
    return {all};
  }
  if (operation == "wait_get") return {Step{bytes.wait(key), released}, get};
  if (operation == "set") return {Step{bytes.set(key, value) + bytes.check(key), ready}};
  return {};
}

// Takes what has arrived. Returns the finished step's place, or -1 for "not yet", or -2 for an
// error.
int receive(Client& client) {
  std::array<char, 4096> buffer;  // NOLINT: see echo_server.
  const auto& reply = client.steps[client.step].reply;
  const auto got = ::recv(client.fd, buffer.data(), buffer.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return -1;
  if (got <= 0) return -2;
  const auto size = static_cast<std::size_t>(got);
  if (size > reply.size() - client.received ||
      std::memcmp(buffer.data(), reply.data() + client.received, size) != 0) {
    return -2;
  }
  client.received += size;
  if (client.received < reply.size()) return -1;
  client.received = 0;
  return static_cast<int>(client.step);
}

class Loop {
 public:
  Loop() : epoll_(::epoll_create1(EPOLL_CLOEXEC)), events_(256) {}

  void add(const Client& client, std::size_t index) const {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = index;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, client.fd, &event) != 0) fail("epoll_ctl");
  }
  void remove(const Client& client) const {
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, client.fd, nullptr);
  }
  // Calls on_readable(index) for each; false when nothing came for kPatience.
  template <typename OnReadable>
  bool once(OnReadable&& on_readable) {
    const int limit_ms = static_cast<int>(std::chrono::milliseconds(kPatience).count());
    const int ready =
        ::epoll_wait(epoll_, events_.data(), static_cast<int>(events_.size()), limit_ms);
    if (ready < 0 && errno != EINTR) fail("epoll_wait");
    for (int i = 0; i < ready; ++i) on_readable(events_[static_cast<std::size_t>(i)].data.u64);
    return ready != 0;
  }

 private:
  int epoll_;
  std::vector<epoll_event> events_;
};

std::vector<Client> connect_all(int port, std::size_t count) {
  std::vector<Client> clients(count);
  for (auto& client : clients) client.fd = connect_to(port);
  return clients;
}

int run_closed_loop(int port, const StoreBytes& bytes, bool echo, std::string_view operation,
                    std::size_t count, double seconds) {
  auto clients = connect_all(port, count);
  Loop loop;
  for (std::size_t i = 0; i < count; ++i) {
    auto& client = clients[i];
    // Every key exists before the measurement: the first step is a SET that is acknowledged.
    const Step first = steps_of("set", bytes, i).front();
    client.steps = steps_of(operation, bytes, i);
    client.steps.push_back(first);
    if (echo) {
      for (auto& step : client.steps) step.reply = step.request;
    } else if (!send_all(client.fd, bytes.hello())) {
      fail("hello");
    }
    loop.add(client, i);
  }

  const std::uint64_t weight = operation == "get16" ? kPipelined : 1;
  std::uint64_t operations = 0;
  std::uint64_t errors = 0;
  std::size_t alive = count;
  const auto give_up = [&](Client& client) {
    ++errors;
    --alive;
    loop.remove(client);
  };
  const auto start_step = [&](Client& client, std::size_t step) {
    client.step = step;
    if (!send_all(client.fd, client.steps[step].request)) give_up(client);
  };

  std::size_t prepared = 0;
  const auto ready_by = Clock::now() + kPatience;
  for (auto& client : clients) start_step(client, client.steps.size() - 1);
  while (prepared < count && alive == count && Clock::now() < ready_by) {
    const bool came = loop.once([&](std::size_t i) {
      const int done = receive(clients[i]);
      if (done == -2) give_up(clients[i]);
      if (done >= 0) ++prepared;
    });
    if (!came) break;
  }
  if (prepared < count) {
    std::fprintf(stderr, "store_load: only %zu of %zu clients could set their key\n", prepared,
                 count);
    return 1;
  }

  const auto start = Clock::now();
  const auto end = start + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
  for (auto& client : clients) start_step(client, 0);
  auto now = start;
  while (now < end && alive > 0) {
    const bool came = loop.once([&](std::size_t i) {
      auto& client = clients[i];
      const int done = receive(client);
      if (done == -2) give_up(client);
      if (done < 0) return;
      // The last step is the preparation; the one before it ends an operation.
      const bool whole = client.step + 2 == client.steps.size();
      if (whole) operations += weight;
      start_step(client, whole ? 0 : client.step + 1);
    });
    if (!came) {
      errors += alive;
      break;
    }
    now = Clock::now();
  }
  std::printf("%llu %.6f %llu\n", static_cast<unsigned long long>(operations),
              Seconds(now - start).count(), static_cast<unsigned long long>(errors));
  return 0;
}

int run_release(int port, const StoreBytes& bytes, std::size_t count, double limit) {
  const auto milliseconds = [](Clock::duration time) { return Seconds(time).count() * 1e3; };
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::duration_cast<Clock::duration>(Seconds(limit));
  // A fresh key each time, so that the same server can be asked again.
  const auto key = "/release/" + std::to_string(start.time_since_epoch().count());
  const std::string request = bytes.hello() + bytes.wait(key) + bytes.check(key);
  std::vector<Client> clients(count);
  Loop loop;
  for (std::size_t i = 0; i < count; ++i) {
    auto& client = clients[i];
    client.fd = connect_to(port);
    client.steps = {Step{request, std::string(1, distrun::bench::kNotReady)},
                    Step{"", std::string(1, distrun::bench::kReleased)}};
    loop.add(client, i);
    if (!send_all(client.fd, request)) fail("send");
  }
  std::size_t errors = 0;
  std::size_t waiting = 0;
  std::size_t released = 0;
  const auto take = [&](std::size_t i) {
    auto& client = clients[i];
    const int done = receive(client);
    if (done == -1) return;
    if (done == -2) {
      ++errors;
      loop.remove(client);
    } else if (done == 0) {
      ++waiting;
      client.step = 1;
    } else {
      ++released;
      loop.remove(client);
    }
  };
  while (waiting + errors < count && Clock::now() < deadline && loop.once(take)) continue;
  const auto connected = Clock::now();
  const int setter = connect_to(port);
  const auto set_at = Clock::now();
  if (!send_all(setter, bytes.hello() + bytes.set(key, "go"))) fail("set");
  while (released + errors < count && Clock::now() < deadline && loop.once(take)) continue;
  const auto end = Clock::now();
  errors += count - released - errors;
  std::printf("%zu %zu %.3f %.3f %.3f\n", released, errors, milliseconds(connected - start),
              milliseconds(end - set_at), milliseconds(end - start));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::fputs("usage: store_load PORT g0|g4|echo get|get16|wait_get|set|release CLIENTS SECONDS\n",
               stderr);
    return 2;
  }
  const int port = std::atoi(argv[1]);
  const std::string_view protocol = argv[2];
  const std::string_view operation = argv[3];
  const auto count = std::strtoull(argv[4], nullptr, 10);
  const double seconds = std::strtod(argv[5], nullptr);
  const StoreBytes bytes(protocol == "g0");
  const bool known = protocol == "g0" || protocol == "g4" || protocol == "echo";
  if (port < 1 || !known || count < 1 || count > 10000 || !(seconds > 0)) {
    std::fprintf(stderr, "store_load: bad port, protocol, client count or time\n");
    return 2;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);

  if (operation == "release") return run_release(port, bytes, count, seconds);
  if (steps_of(operation, bytes, 0).empty()) {
    std::fprintf(stderr, "store_load: unknown operation %s\n", argv[3]);
    return 2;
  }
  return run_closed_loop(port, bytes, protocol == "echo", operation, count, seconds);
}
