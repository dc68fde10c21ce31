// join_load PORT AGENTS: so many agents of one job, stubs on one thread, join the coordinator at
// 127.0.0.1:PORT at once.  Prints, as one line of numbers, the milliseconds from the first connect
// until the last agent has its place, and then, after one agent's worker has "failed" and all have
// said that they stopped, until all have their place in the next round.
//
// Exit status 1, with the reason, if that takes more than a minute or a place is wrong.
#include "rendezvous/protocol/frame.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <set>
#include <string>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <variant>
#include <vector>

namespace {

using namespace distrun;
using namespace distrun::rendezvous;
using Timer = std::chrono::steady_clock;

constexpr auto kLimit = std::chrono::minutes(1);

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "join_load: %s\n", why.c_str());
  std::exit(1);
}

struct Agent {
  int fd = -1;
  FrameDecoder decoder{kMaxCoordinatorFrame};
  Welcome place;
  int rounds = 0;
};

class Load {
 public:
  Load(std::uint16_t port, int agents) : port_(port), agents_(static_cast<std::size_t>(agents)) {
    epoll_ = ::epoll_create1(EPOLL_CLOEXEC);
  }

  void run() {
    const auto began = Timer::now();
    deadline_ = began + kLimit;
    for (std::size_t i = 0; i < agents_.size(); ++i) {
      connect(i);
      poll(0);  // as they come; nobody waits for all to be connected
    }
    wait_for_round(1);
    const auto formed = Timer::now();
    check();

    const auto again = Timer::now();
    Failed failed;
    failed.round = agents_[0].place.round;
    failed.failure.host = "node0";
    failed.failure.pid = 1;
    send(0, Failed{failed});
    for (std::size_t i = 0; i < agents_.size(); ++i) end(i);
    wait_for_round(2);
    const auto restarted = Timer::now();
    check();
    std::printf("%.3f %.3f\n", milliseconds(formed - began), milliseconds(restarted - again));
  }

 private:
  static double milliseconds(Timer::duration time) {
    return std::chrono::duration<double, std::milli>(time).count();
  }

  void connect(std::size_t i) {
    Agent& agent = agents_[i];
    agent.fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (agent.fd < 0) fail(std::string("socket: ") + std::strerror(errno));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(agent.fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
      fail(std::string("connect: ") + std::strerror(errno));
    }
    const int one = 1;
    ::setsockopt(agent.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = i;
    ::epoll_ctl(epoll_, EPOLL_CTL_ADD, agent.fd, &event);
    Join join;
    join.job = "load";
    join.node = "node" + std::to_string(i);
    join.host = join.node;
    join.address = "127.0.0.1";
    join.store_port = 1;
    join.nproc = 8;
    join.terms.min_nodes = join.terms.max_nodes = static_cast<int>(agents_.size());
    join.terms.max_restarts = 1;
    join.terms.command = "train.py";
    write(agent, std::string(greeting()) + encode(AgentMessage(join)));
  }

  void end(std::size_t i) {
    Ended ended;
    ended.outcome.round = agents_[i].place.round;
    ended.outcome.result = i == 0 ? RoundResult::failed : RoundResult::stopped;
    if (i == 0) ended.outcome.failure = Failure{};
    if (i == 0) ended.outcome.failure->pid = 1;
    ended.store_port = 1;
    send(i, ended);
  }

  void send(std::size_t i, const AgentMessage& message) { write(agents_[i], encode(message)); }

  static void write(const Agent& agent, const std::string& bytes) {
    // Small messages to a peer that reads: the socket's buffer holds them.
    if (::send(agent.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(bytes.size())) {
      fail(std::string("send: ") + std::strerror(errno));
    }
  }

  void wait_for_round(int round) {
    while (std::any_of(agents_.begin(), agents_.end(),
                       [round](const Agent& agent) { return agent.rounds < round; })) {
      if (Timer::now() > deadline_) fail("not all agents have a place after a minute");
      poll(100);
    }
  }

  void poll(int milliseconds) {
    epoll_event events[256];
    const int n = ::epoll_wait(epoll_, events, 256, milliseconds);
    for (int i = 0; i < n; ++i) read(events[i].data.u64);
  }

  void read(std::size_t i) {
    Agent& agent = agents_[i];
    const auto room = agent.decoder.prepare();
    const ssize_t n = ::recv(agent.fd, room.data(), room.size(), 0);
    if (n <= 0) fail("agent " + std::to_string(i) + " lost its connection");
    agent.decoder.commit(static_cast<std::size_t>(n));
    while (true) {
      const auto payload = agent.decoder.next();
      if (!payload) fail(payload.error().detail);
      if (!payload->has_value()) return;
      const auto message = decode_coordinator_message(**payload);
      if (!message) fail(message.error().detail);
      if (const auto* welcome = std::get_if<Welcome>(&*message)) {
        agent.place = *welcome;
        ++agent.rounds;
      } else if (const auto* ping = std::get_if<Ping>(&*message)) {
        send(i, Pong{ping->number});
      } else if (const auto* refused = std::get_if<Refused>(&*message)) {
        fail("refused: " + refused->why);
      } else if (std::holds_alternative<Over>(*message)) {
        fail("the job is over");
      }
    }
  }

  // A round of its own for all, and each rank once.
  void check() const {
    std::set<int> ranks;
    for (const Agent& agent : agents_) {
      if (agent.place.round != agents_[0].place.round) fail("agents are in different rounds");
      if (agent.place.node_count != static_cast<int>(agents_.size())) fail("a round of wrong size");
      ranks.insert(agent.place.node_rank.value);
    }
    if (ranks.size() != agents_.size()) fail("two agents have one rank");
  }

  std::uint16_t port_;
  std::vector<Agent> agents_;
  int epoll_;
  Timer::time_point deadline_;
};

}  // namespace

int main(int argc, char** argv) {
  const int port = argc == 3 ? std::atoi(argv[1]) : 0;
  const int agents = argc == 3 ? std::atoi(argv[2]) : 0;
  if (port < 1 || port > 65535 || agents < 1 || agents > 60'000) {
    std::fprintf(stderr, "usage: join_load PORT AGENTS\n");
    return 2;
  }
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  Load(static_cast<std::uint16_t>(port), agents).run();
}
