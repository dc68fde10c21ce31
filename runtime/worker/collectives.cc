#include "runtime/worker/collectives.h"

#include "runtime/base/check.h"
#include "runtime/worker/reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

namespace distrun {
namespace {

// How long a call may be slow to start before rank 0 tells whom it waits for.
constexpr auto kSlow = std::chrono::milliseconds(100);

// The call as it travels.  Both sides are the same build on the same kind of machine or `magic`
// does not fit.
struct CallMessage {
  std::uint32_t magic = 0x64725232;  // changes with the layout
  std::uint8_t op = 0;
  std::uint8_t reduce = 0;
  std::uint8_t dtype = 0;
  std::uint8_t unused = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::int32_t root = 0;
  std::int32_t rank = 0;
};
static_assert(sizeof(CallMessage) == 32);

struct Verdict {
  std::uint64_t agreed = 0;
  CallMessage reference;  // rank 0's call
  CallMessage other;      // the first that differs from it
};
static_assert(sizeof(Verdict) == 72);

CallMessage message_of(const Call& call, int rank) {
  CallMessage message;
  message.op = static_cast<std::uint8_t>(call.op);
  message.reduce = static_cast<std::uint8_t>(call.reduce);
  message.dtype = static_cast<std::uint8_t>(call.dtype);
  message.sequence = call.sequence;
  message.count = call.count;
  message.root = call.root;
  message.rank = rank;
  return message;
}

std::string describe(const CallMessage& message) {
  Call call;
  call.op = static_cast<OpType>(message.op);
  call.reduce = static_cast<ReduceOp>(message.reduce);
  call.dtype = static_cast<DType>(message.dtype);
  call.sequence = message.sequence;
  call.count = message.count;
  call.root = message.root;
  return to_string(call);
}

// Empty: the same call.
std::string difference(const CallMessage& a, const CallMessage& b) {
  std::string what;
  const auto compare = [&](bool differs, const char* name) {
    if (differs) what += (what.empty() ? "" : ", ") + std::string(name);
  };
  if (a.magic != b.magic) return "the version of the library";
  compare(a.op != b.op, "the operation");
  compare(a.sequence != b.sequence, "its number");
  compare(a.dtype != b.dtype, "the element type");
  compare(a.count != b.count, "the count");
  compare(a.reduce != b.reduce, "the reduce operation");
  compare(a.root != b.root, "the root");
  return what;
}

std::span<const std::byte> bytes_of(const void* data, std::size_t size) {
  return {static_cast<const std::byte*>(data), size};
}

// What one rank puts in, and what comes back with the verdict, if small.
struct InlineSizes {
  std::size_t up = 0;
  std::size_t down = 0;
  bool fits = false;
};

std::size_t bytes_in(const Call& call) {
  return call.count * size_of(call.dtype);
}

InlineSizes inline_sizes(const Call& call, int rank, int size) {
  const std::size_t in = bytes_in(call);
  const std::size_t largest =
      call.op == OpType::all_gather ? in * static_cast<std::size_t>(size) : in;
  InlineSizes sizes;
  sizes.fits = largest <= kInlineBytes;
  if (!sizes.fits) return sizes;
  sizes.up = in;
  sizes.down = largest;
  if (call.op == OpType::broadcast && rank != call.root) sizes.up = 0;
  if (call.op == OpType::broadcast && rank == call.root) sizes.down = 0;
  if (call.op == OpType::reduce && rank != call.root) sizes.down = 0;
  return sizes;
}

constexpr std::size_t kCallSlot = sizeof(CallMessage) + kInlineBytes;

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

}  // namespace

std::string to_string(const Call& call) {
  std::string text(to_string(call.op));
  text += " " + std::to_string(call.sequence);
  if (call.op == OpType::barrier) return text;
  text += " (" + std::string(to_string(call.dtype)) + " x " + std::to_string(call.count);
  if (call.op == OpType::all_reduce || call.op == OpType::reduce)
    text += ", " + std::string(to_string(call.reduce));
  if (call.op == OpType::broadcast || call.op == OpType::reduce)
    text += ", root " + std::to_string(call.root);
  return text + ")";
}

Collectives::Collectives(Transport& transport, Waiting waiting)
    : transport_(transport),
      waiting_(std::move(waiting)),
      rank_(transport.rank()),
      size_(transport.size()) {
  const auto others = static_cast<std::size_t>(size_ - 1);
  calls_.resize(kCallSlot * (rank_ == 0 ? others : 1));
  verdict_.resize(sizeof(Verdict) + kInlineBytes);
}

void Collectives::run(const Call& call, TimePoint deadline) {
  if (size_ > 1) rank_ == 0 ? lead(call, deadline) : follow(call, deadline);
  if (size_ == 1) copy(call.out, call.in, bytes_in(call));
  if (size_ == 1 || inline_sizes(call, rank_, size_).fits) return;
  switch (call.op) {
    case OpType::broadcast:
      return broadcast_tree(call, deadline);
    case OpType::all_reduce:
      return all_reduce_ring(call, deadline);
    case OpType::reduce:
      return reduce_ring(call, deadline);
    case OpType::all_gather:
      return all_gather_ring(call, deadline);
    case OpType::barrier:
      return;
  }
}

// --- the agreement -----------------------------------------------------------------------------

void Collectives::lead(const Call& call, TimePoint deadline) {
  collect_calls(call, deadline);
  compare_calls(call, deadline);
  Verdict verdict;
  verdict.agreed = 1;
  verdict.reference = message_of(call, 0);
  std::memcpy(verdict_.data(), &verdict, sizeof verdict);
  combine_inline(call);
  std::vector<std::unique_ptr<Transfer>> sends;
  for (int peer = 1; peer < size_; ++peer)
    sends.push_back(transport_.send(
        peer, std::span(verdict_).first(sizeof verdict + inline_sizes(call, peer, size_).down)));
  for (int peer = 1; peer < size_; ++peer)
    if (!sends[static_cast<std::size_t>(peer - 1)]->wait(deadline)) throw PeersLate({peer});
}

// Into calls_, one slot for each rank.
void Collectives::collect_calls(const Call& call, TimePoint deadline) {
  std::vector<std::unique_ptr<Transfer>> receives;
  for (int peer = 1; peer < size_; ++peer) {
    const auto slot =
        std::span(calls_).subspan(kCallSlot * static_cast<std::size_t>(peer - 1), kCallSlot);
    std::memset(slot.data(), 0, sizeof(CallMessage));
    receives.push_back(transport_.receive(peer, slot));
  }
  const auto absent_at = [&](TimePoint when) {
    std::vector<int> absent;
    for (int peer = 1; peer < size_; ++peer) {
      auto& receive = receives[static_cast<std::size_t>(peer - 1)];
      if (receive && receive->wait(when)) receive.reset();
      if (receive) absent.push_back(peer);
    }
    return absent;
  };
  const TimePoint slow = Clock::now() + kSlow;
  auto absent = absent_at(std::min(slow, deadline));
  if (!absent.empty() && slow < deadline) {
    waiting_(call, absent);
    absent = absent_at(deadline);
  }
  if (!absent.empty()) throw PeersLate(std::move(absent));
}

void Collectives::compare_calls(const Call& call, TimePoint deadline) {
  Verdict verdict;
  verdict.reference = message_of(call, 0);
  for (int peer = 1; peer < size_; ++peer) {
    std::memcpy(&verdict.other, calls_.data() + kCallSlot * static_cast<std::size_t>(peer - 1),
                sizeof verdict.other);
    if (difference(verdict.reference, verdict.other).empty()) continue;
    std::memcpy(verdict_.data(), &verdict, sizeof verdict);
    std::vector<std::unique_ptr<Transfer>> sends;
    for (int to = 1; to < size_; ++to)
      sends.push_back(transport_.send(to, std::span(verdict_).first(sizeof verdict)));
    for (auto& send : sends) static_cast<void>(send->wait(deadline));
    throw CallsDiffer(peer, "rank 0 called " + describe(verdict.reference) + ", rank " +
                                std::to_string(peer) + " called " + describe(verdict.other) +
                                ": they differ in " + difference(verdict.reference, verdict.other));
  }
}

// Small data: the result for rank 0 into call.out, for the others behind the verdict.
std::size_t Collectives::combine_inline(const Call& call) {
  if (!inline_sizes(call, rank_, size_).fits) return 0;
  const std::size_t bytes = bytes_in(call);
  std::byte* result = verdict_.data() + sizeof(Verdict);
  const auto data_of = [&](int peer) {
    return peer == 0 ? static_cast<const std::byte*>(call.in)
                     : calls_.data() + kCallSlot * static_cast<std::size_t>(peer - 1) +
                           sizeof(CallMessage);
  };
  switch (call.op) {
    case OpType::barrier:
      break;
    case OpType::broadcast:
      copy(result, data_of(call.root), bytes);
      copy(call.out, result, bytes);
      break;
    case OpType::all_reduce:
    case OpType::reduce:
      copy(result, call.in, bytes);
      for (int peer = 1; peer < size_; ++peer)
        combine(call.dtype, call.reduce, result, data_of(peer), call.count);
      finish(call.dtype, call.reduce, result, call.count, size_);
      if (call.op == OpType::all_reduce || call.root == 0) copy(call.out, result, bytes);
      break;
    case OpType::all_gather:
      for (int peer = 0; peer < size_; ++peer)
        copy(result + bytes * static_cast<std::size_t>(peer), data_of(peer), bytes);
      copy(call.out, result, bytes * static_cast<std::size_t>(size_));
      break;
  }
  return bytes;
}

void Collectives::follow(const Call& call, TimePoint deadline) {
  const InlineSizes sizes = inline_sizes(call, rank_, size_);
  const CallMessage message = message_of(call, rank_);
  std::memcpy(calls_.data(), &message, sizeof message);
  copy(calls_.data() + sizeof message, call.in, sizes.up);
  const auto answer = transport_.receive(0, verdict_);
  const auto question = transport_.send(0, std::span(calls_).first(sizeof message + sizes.up));
  if (!answer->wait(deadline) || !question->wait(deadline)) throw PeersLate({0});

  Verdict verdict;
  std::memcpy(&verdict, verdict_.data(), sizeof verdict);
  if (verdict.agreed == 0)
    throw CallsDiffer(verdict.other.rank == rank_ ? 0 : verdict.other.rank,
                      "rank 0 called " + describe(verdict.reference) + ", rank " +
                          std::to_string(verdict.other.rank) + " called " +
                          describe(verdict.other) + ": they differ in " +
                          difference(verdict.reference, verdict.other));
  copy(call.out, verdict_.data() + sizeof verdict, sizes.down);
}

// --- larger data -------------------------------------------------------------------------------

void Collectives::send(int peer, std::span<const std::byte> message, TimePoint deadline) {
  if (!transport_.send(peer, message)->wait(deadline)) throw PeersLate({peer});
}

void Collectives::receive(int peer, std::span<std::byte> room, TimePoint deadline) {
  if (!transport_.receive(peer, room)->wait(deadline)) throw PeersLate({peer});
}

// One step of a ring.  Both sides know the sizes, so nothing is sent for an empty piece.
void Collectives::exchange(std::span<const std::byte> to_right, std::span<std::byte> from_left,
                           TimePoint deadline) {
  std::unique_ptr<Transfer> incoming, outgoing;
  if (!from_left.empty()) incoming = transport_.receive(left(), from_left);
  if (!to_right.empty()) outgoing = transport_.send(right(), to_right);
  if (incoming && !incoming->wait(deadline)) throw PeersLate({left()});
  if (outgoing && !outgoing->wait(deadline)) throw PeersLate({right()});
}

// The index-th of size_ nearly equal pieces; the index wraps around.
Collectives::Piece Collectives::piece(const Call& call, int index) const {
  const auto n = static_cast<std::uint64_t>(size_);
  const auto i = static_cast<std::uint64_t>((index + 2 * size_) % size_);
  const auto start = [&](std::uint64_t k) {  // without overflow for any count
    return call.count / n * k + std::min(call.count % n, k);
  };
  const std::size_t width = size_of(call.dtype);
  return {start(i) * width, (start(i + 1) - start(i)) * width};
}

void Collectives::broadcast_tree(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_in(call);
  const auto n = static_cast<unsigned>(size_);
  // Ranks counted from the root: v receives from v without its highest bit.
  const unsigned v = static_cast<unsigned>(rank_ + size_ - call.root) % n;
  const auto rank_at = [&](unsigned u) {
    return static_cast<int>((u + static_cast<unsigned>(call.root)) % n);
  };
  const unsigned own = std::bit_floor(v);
  if (v != 0) receive(rank_at(v - own), {static_cast<std::byte*>(call.out), bytes}, deadline);
  for (unsigned bit = v == 0 ? 1 : own * 2; v + bit < n; bit *= 2)
    send(rank_at(v + bit), bytes_of(call.out, bytes), deadline);
}

// After it, piece rank + 1 of `data` is the finished result.
void Collectives::reduce_scatter_ring(const Call& call, std::byte* data, TimePoint deadline) {
  scratch_.resize(std::max(scratch_.size(), piece(call, 0).bytes));
  for (int step = 0; step < size_ - 1; ++step) {
    const Piece out = piece(call, rank_ - step);
    const Piece in = piece(call, rank_ - step - 1);
    exchange({data + out.offset, out.bytes}, std::span(scratch_).first(in.bytes), deadline);
    combine(call.dtype, call.reduce, data + in.offset, scratch_.data(),
            in.bytes / size_of(call.dtype));
  }
  const Piece mine = piece(call, rank_ + 1);
  finish(call.dtype, call.reduce, data + mine.offset, mine.bytes / size_of(call.dtype), size_);
}

void Collectives::all_reduce_ring(const Call& call, TimePoint deadline) {
  auto* data = static_cast<std::byte*>(call.out);
  reduce_scatter_ring(call, data, deadline);
  for (int step = 0; step < size_ - 1; ++step) {
    const Piece out = piece(call, rank_ + 1 - step);
    const Piece in = piece(call, rank_ - step);
    exchange({data + out.offset, out.bytes}, {data + in.offset, in.bytes}, deadline);
  }
}

void Collectives::reduce_ring(const Call& call, TimePoint deadline) {
  std::vector<std::byte> copy_of_mine;
  auto* data = static_cast<std::byte*>(call.out);
  if (rank_ != call.root) {  // whose data stays as it is
    copy_of_mine.assign(data, data + bytes_in(call));
    data = copy_of_mine.data();
  }
  reduce_scatter_ring(call, data, deadline);
  const Piece mine = piece(call, rank_ + 1);
  if (rank_ != call.root) {
    if (mine.bytes > 0) send(call.root, {data + mine.offset, mine.bytes}, deadline);
    return;
  }
  std::vector<std::unique_ptr<Transfer>> receives;
  for (int peer = 0; peer < size_; ++peer) {
    const Piece its = piece(call, peer + 1);
    receives.push_back(peer == rank_ || its.bytes == 0
                           ? nullptr
                           : transport_.receive(peer, {data + its.offset, its.bytes}));
  }
  for (int peer = 0; peer < size_; ++peer) {
    auto& receive = receives[static_cast<std::size_t>(peer)];
    if (receive && !receive->wait(deadline)) throw PeersLate({peer});
  }
}

void Collectives::all_gather_ring(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_in(call);
  auto* data = static_cast<std::byte*>(call.out);
  const auto block = [&](int index) {
    return data + bytes * static_cast<std::size_t>((index + 2 * size_) % size_);
  };
  copy(block(rank_), call.in, bytes);
  for (int step = 0; step < size_ - 1; ++step)
    exchange({block(rank_ - step), bytes}, {block(rank_ - step - 1), bytes}, deadline);
}

}  // namespace distrun
