// Messages between two ranks, by tag, beside the collectives.
//
//   sender ──what it is, small data──► receiver compares
//          ──larger data─────────────►
//
// What is sent with one tag arrives in the order in which it was sent.  A receiver whose room is
// not exactly what was sent says so before any data moves: a transport may not survive it.
#pragma once

#include "runtime/base/time.h"
#include "runtime/worker/transport.h"
#include <distrun/process_group.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace distrun {

inline constexpr int kAnySource = -1;

struct P2PCall {
  OpType op = OpType::send;  // or recv
  DType dtype = DType::float32;
  Device device;
  int peer = 0;  // recv: may be kAnySource, and is the sender afterwards
  int tag = 0;
  std::uint64_t count = 0;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
};

// "send to rank 2, tag 0 (float32 x 1000)"
std::string to_string(const P2PCall& call);

class PointToPoint {
 public:
  // `failed`: asked now and then while anybody's message is waited for: the group has failed on
  // another rank, so that none may come.  REQUIRES: `transport` outlives it.
  explicit PointToPoint(Transport& transport, std::function<bool()> failed = nullptr);

  // From any thread, if no two do one direction, peer and tag at once.  Throws PeerLost, PeersLate
  // (of nobody, if it would have taken anybody's) or CallsDiffer; the group is of no more use then.
  void run(P2PCall& call, TimePoint deadline);

 private:
  void reach(int peer, TimePoint deadline);
  void send(const P2PCall& call, TimePoint deadline);
  void receive(P2PCall& call, TimePoint deadline);
  bool wait(Transfer& transfer, int peer, TimePoint deadline);
  void look_for_lost();

  Transport& transport_;
  const std::function<bool()> failed_;
  std::atomic<std::uint32_t> sent_ = 0;
  std::mutex watch_mutex_;
  std::vector<std::byte> watch_room_;
  std::vector<std::unique_ptr<Transfer>> watched_;  // receives of what nobody sends
};

}  // namespace distrun
