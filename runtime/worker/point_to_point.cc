#include "runtime/worker/point_to_point.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace distrun {
namespace {

constexpr std::uint32_t kMagic = 0x64725331;  // changes with the layout
constexpr auto kLook = std::chrono::milliseconds(500);
constexpr std::size_t kSmall = std::size_t{4} * 1024;

struct Header {
  std::uint32_t magic = kMagic;
  std::uint32_t dtype = 0;
  std::uint64_t count = 0;
  std::uint32_t number = 0;  // which channel larger data comes on
  std::uint32_t small = 0;   // it is behind this
};
static_assert(sizeof(Header) == 24);
using Message = std::array<std::byte, sizeof(Header) + kSmall>;

Channel heading(int tag) {
  return std::uint64_t{1} << 62U | static_cast<std::uint32_t>(tag);
}
Channel body(std::uint32_t number) {
  return std::uint64_t{1} << 61U | number;
}
constexpr Channel kWatch = std::uint64_t{1} << 60U;  // nothing is sent on it

}  // namespace

std::string to_string(const P2PCall& call) {
  std::string text(to_string(call.op));
  text += call.op == OpType::send ? " to " : " from ";
  text += call.peer == kAnySource ? "any rank" : "rank " + std::to_string(call.peer);
  return text + ", tag " + std::to_string(call.tag) + " (" + std::string(to_string(call.dtype)) +
         " x " + std::to_string(call.count) + ")";
}

PointToPoint::PointToPoint(Transport& transport, std::function<bool()> failed)
    : transport_(transport), failed_(std::move(failed)) {}

void PointToPoint::run(P2PCall& call, TimePoint deadline) {
  // Of anybody: whoever sends connects.
  if (call.peer != kAnySource) reach(call.peer, deadline);
  call.op == OpType::send ? send(call, deadline) : receive(call, deadline);
}

void PointToPoint::reach(int peer, TimePoint deadline) {
  while (!transport_.reach(peer, std::min(deadline, Clock::now() + kLook))) {
    if (Clock::now() >= deadline) throw PeersLate({peer});
    if (failed_ && failed_()) throw PeerLost(peer, "the group has failed on another rank");
  }
}

void PointToPoint::send(const P2PCall& call, TimePoint deadline) {
  const std::size_t bytes = call.count * size_of(call.dtype);
  const bool small = bytes <= kSmall;
  Header header;
  header.dtype = static_cast<std::uint32_t>(call.dtype);
  header.count = call.count;
  header.number = sent_++;
  header.small = small ? 1 : 0;
  Message message;
  std::memcpy(message.data(), &header, sizeof header);
  if (small && bytes > 0) std::memcpy(message.data() + sizeof header, call.in, bytes);
  const auto first = transport_.send(
      call.peer, std::span(message).first(sizeof header + (small ? bytes : 0)), heading(call.tag));
  std::unique_ptr<Transfer> second;
  if (!small) second = transport_.send(call.peer, {call.in, bytes}, body(header.number));
  if (!wait(*first, call.peer, deadline) || (second && !wait(*second, call.peer, deadline)))
    throw PeersLate({call.peer});
}

bool PointToPoint::wait(Transfer& transfer, int peer, TimePoint deadline) {
  try {
    while (failed_ && Clock::now() + kLook < deadline) {
      if (transfer.wait(Clock::now() + kLook)) return true;
      if (failed_()) throw PeerLost(kAnySource, "the group has failed on another rank");
      // Of anybody, no connection's end says that nobody will come.
      if (peer == kAnySource) look_for_lost();
    }
    return transfer.wait(deadline);
  } catch (const PeerLost& lost) {
    if (lost.peer == kAnySource && peer == kAnySource) look_for_lost();  // who it was
    throw;
  }
}

// Throws PeerLost of a rank whose connection is gone.
void PointToPoint::look_for_lost() {
  const std::lock_guard lock(watch_mutex_);
  watch_room_.resize(static_cast<std::size_t>(transport_.size()));
  watched_.resize(watch_room_.size());
  for (std::size_t peer = 0; peer < watched_.size(); ++peer) {
    if (static_cast<int>(peer) == transport_.rank()) continue;
    // With whom there is no connection yet, it knows from elsewhere.
    if (!transport_.connected(static_cast<int>(peer))) continue;
    if (!watched_[peer])
      watched_[peer] = transport_.receive(static_cast<int>(peer),
                                          std::span(watch_room_).subspan(peer, 1), kWatch);
    watched_[peer]->wait(Clock::now());
  }
}

void PointToPoint::receive(P2PCall& call, TimePoint deadline) {
  const std::size_t bytes = call.count * size_of(call.dtype);
  Message message;
  const auto first = call.peer == kAnySource
                         ? transport_.receive_any(message, heading(call.tag))
                         : transport_.receive(call.peer, message, heading(call.tag));
  if (!wait(*first, call.peer, deadline))
    throw PeersLate(call.peer == kAnySource ? std::vector<int>() : std::vector<int>{call.peer});
  const std::string called = to_string(call);
  call.peer = first->peer();
  Header header;
  std::memcpy(&header, message.data(), sizeof header);
  const bool known = header.magic == kMagic && header.dtype < static_cast<unsigned>(kDTypes);
  P2PCall theirs;
  theirs.peer = transport_.rank();
  theirs.tag = call.tag;
  theirs.dtype = known ? static_cast<DType>(header.dtype) : DType::uint8;
  theirs.count = header.count;
  if (!known || theirs.dtype != call.dtype || theirs.count != call.count)
    throw CallsDiffer(call.peer,
                      "rank " + std::to_string(call.peer) +
                          (known ? " called " + to_string(theirs) : " runs another version") +
                          ", rank " + std::to_string(transport_.rank()) + " called " + called +
                          ": they differ in " +
                          (theirs.dtype != call.dtype ? "the element type" : "the count"));
  if (header.small != 0) {
    if (bytes > 0) std::memcpy(call.out, message.data() + sizeof header, bytes);
    return;
  }
  const auto second = transport_.receive(call.peer, {call.out, bytes}, body(header.number));
  if (!wait(*second, call.peer, deadline)) throw PeersLate({call.peer});
}

}  // namespace distrun
