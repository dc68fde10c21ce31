#include "runtime/worker/collectives.h"

#include "runtime/base/check.h"
#include "runtime/worker/reduction.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

namespace distrun {
namespace {

// How long a wait may last before others are told of it, if they ask; then more and more seldom.
constexpr auto kSlow = std::chrono::milliseconds(100);
TimePoint tell_next(TimePoint since) {
  using std::chrono::milliseconds;
  const TimePoint now = Clock::now();
  return now + std::clamp<Duration>((now - since) / 4, milliseconds(50), milliseconds(1000));
}

// How long rank 0 looks at one that is absent before it looks at the next.
constexpr auto kLook = std::chrono::milliseconds(20);

struct Verdict {
  std::uint32_t agreed = 0;
  std::uint32_t small = 0;  // the result is behind it
  std::int32_t a = 0;       // else the two ranks that differ, and words behind it
  std::int32_t b = 0;
  std::uint64_t bytes = 0;  // behind it
};
static_assert(sizeof(Verdict) == 24);
constexpr std::size_t kMaxWords = 1000;

// What rank 0 holds for all ranks together stays within a few hundred KiB.
std::size_t small_for(int size) {
  constexpr std::size_t kMost = std::size_t{16} * 1024;
  return std::clamp(16 * kMost / static_cast<std::size_t>(size), std::size_t{1024}, kMost);
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

std::size_t bytes_of(const Call& call, std::uint64_t count) {
  return count * size_of(call.dtype);
}

// Any input may share memory with any output: a copy too much does no harm.
bool overlap(const Call& call) {
  const std::byte *first = nullptr, *last = nullptr;
  for (const ConstPart& part : call.ins) {
    if (part.count == 0) continue;
    const std::byte* const end = part.data + bytes_of(call, part.count);
    if (first == nullptr || std::less<>()(part.data, first)) first = part.data;
    if (last == nullptr || std::less<>()(last, end)) last = end;
  }
  return std::any_of(call.outs.begin(), call.outs.end(), [&](const Part& part) {
    return part.count > 0 && std::less<>()(part.data, last) &&
           std::less<>()(first, part.data + bytes_of(call, part.count));
  });
}

}  // namespace

std::string to_string(const Call& call) {
  std::string text(to_string(call.op));
  text += " " + std::to_string(call.sequence);
  if (call.op == OpType::barrier) return text;
  text += " (" + std::string(to_string(call.dtype));
  if (call.op != OpType::all_to_all) text += " x " + std::to_string(call.count);
  const bool reduces = call.op == OpType::all_reduce || call.op == OpType::reduce ||
                       call.op == OpType::reduce_scatter;
  if (reduces) text += ", " + std::string(to_string(call.reduce));
  const bool rooted = call.op == OpType::broadcast || call.op == OpType::reduce ||
                      call.op == OpType::gather || call.op == OpType::scatter;
  if (rooted) text += ", root " + std::to_string(call.root);
  return text + ")";
}

void run_alone(const Call& call) {
  const std::size_t bytes = bytes_of(call, call.count);
  switch (call.op) {
    case OpType::all_reduce:
    case OpType::reduce:
      prepare(call.dtype, call.reduce, call.factor, call.out, call.in, call.count);
      return finish(call.dtype, call.reduce, call.out, call.count, 1);
    case OpType::reduce_scatter:
      prepare(call.dtype, call.reduce, call.factor, call.out, call.ins[0].data, call.count);
      return finish(call.dtype, call.reduce, call.out, call.count, 1);
    case OpType::all_gather:
    case OpType::gather:
      return copy_bytes(call.outs[0].data, call.in, bytes);
    case OpType::scatter:
      return copy_bytes(call.out, call.ins[0].data, bytes);
    case OpType::all_to_all:
      return copy_bytes(call.outs[0].data, call.ins[0].data, bytes_of(call, call.ins[0].count));
    case OpType::broadcast:
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return;
  }
}

Collectives::Collectives(Transport& transport, Waiting waiting, std::size_t small)
    : transport_(transport),
      waiting_(std::move(waiting)),
      rank_(transport.rank()),
      size_(transport.size()),
      small_(small > 0 ? small : small_for(size_)),
      slot_((Notice::max_bytes(size_, small_) + 63) / 64 * 64) {
  const auto p = static_cast<std::size_t>(size_);
  const std::size_t room = sizeof(Verdict) + std::max(small_, kMaxWords);
  if (rank_ == 0) notices_.resize(slot_ * p);
  verdicts_.resize(rank_ == 0 ? room * p : room);
}

void Collectives::run(const Call& call, TimePoint deadline) {
  if (!agree(call, deadline)) move(call, deadline);
}

bool Collectives::agree(const Call& call, TimePoint deadline) {
  return rank_ == 0 ? lead(call, deadline) : follow(call, deadline);
}

void Collectives::move(const Call& call, TimePoint deadline) {
  switch (call.op) {
    case OpType::broadcast:
      return broadcast_tree(call, deadline);
    case OpType::all_reduce:
      return all_reduce_ring(call, deadline);
    case OpType::reduce:
      return reduce_ring(call, deadline);
    case OpType::reduce_scatter:
      return reduce_scatter(call, deadline);
    case OpType::all_gather:
      return all_gather_ring(call, deadline);
    case OpType::gather:
      return gather(call, deadline);
    case OpType::scatter:
      return scatter(call, deadline);
    case OpType::all_to_all:
      return all_to_all(call, deadline);
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return;
  }
}

// ---- the agreement -----------------------------------------------------------------------------

bool Collectives::lead(const Call& call, TimePoint deadline) {
  const std::vector<Notice> notices = collect(call, deadline);
  if (const auto difference = find_difference(notices)) disagree(*difference, deadline);
  const std::size_t width = size_of(call.dtype);
  const bool small = std::all_of(notices.begin(), notices.end(), [&](const Notice& notice) {
    return notice.has_data && notice.total_out(size_) <= small_ / width;
  });
  Verdict verdict;
  verdict.agreed = 1;
  verdict.small = small ? 1 : 0;
  const std::size_t room = verdicts_.size() / static_cast<std::size_t>(size_);
  if (small) combine_small(call, notices);
  std::vector<Pending> sends;
  for (int peer = 1; peer < size_; ++peer) {
    const Notice& notice = notices[static_cast<std::size_t>(peer)];
    verdict.bytes = small ? notice.total_out(size_) * width : 0;
    std::byte* const at = verdicts_.data() + room * static_cast<std::size_t>(peer);
    std::memcpy(at, &verdict, sizeof verdict);
    sends.push_back({peer, transport_.send(peer, {at, sizeof verdict + verdict.bytes})});
  }
  complete(call, sends, deadline);
  if (small) take_small_result(call, std::span(verdicts_).first(room).subspan(sizeof verdict));
  return small || call.op == OpType::barrier;
}

std::vector<Notice> Collectives::collect(const Call& call, TimePoint deadline) {
  std::vector<std::unique_ptr<Transfer>> receives;
  for (int peer = 1; peer < size_; ++peer) {
    const auto slot = std::span(notices_).subspan(slot_ * static_cast<std::size_t>(peer), slot_);
    std::memset(slot.data(), 0, sizeof(std::uint32_t));
    receives.push_back(transport_.receive(peer, slot));
  }
  std::vector<Notice> notices;
  notices.reserve(static_cast<std::size_t>(size_));
  notices.push_back(Notice::of(call, 0));
  notices[0].has_data = bytes_of(call, notices[0].total_in(size_)) <= small_;
  if (notices[0].has_data) notices[0].data = small_input(call, notices[0]);
  const auto absent_at = [&](TimePoint when) {
    std::vector<int> absent;
    for (int peer = 1; peer < size_; ++peer) {
      auto& receive = receives[static_cast<std::size_t>(peer - 1)];
      if (receive && receive->wait(when)) receive.reset();
      if (receive) absent.push_back(peer);
    }
    return absent;
  };
  const TimePoint start = Clock::now();
  TimePoint tell = start + kSlow;
  auto absent = absent_at(std::min(tell, deadline));
  // A look at each in turn: one that dies is not to go unnoticed behind one that is only late.
  while (!absent.empty() && Clock::now() < deadline) {
    if (Clock::now() >= tell) {
      waiting_(call, absent);
      tell = tell_next(start);
    }
    absent = absent_at(std::min(Clock::now() + kLook, deadline));
  }
  if (!absent.empty()) throw PeersLate(std::move(absent));
  for (int peer = 1; peer < size_; ++peer) {
    const auto slot = std::span(notices_).subspan(slot_ * static_cast<std::size_t>(peer), slot_);
    auto notice = Notice::read(slot, size_);
    if (!notice || notice->rank != peer)
      disagree({0, peer, "rank " + std::to_string(peer) + " runs another version of the library"},
               deadline);
    notices.push_back(std::move(*notice));
  }
  return notices;
}

[[noreturn]] void throw_difference(const Difference& difference, int rank) {
  throw CallsDiffer(difference.b == rank ? difference.a : difference.b, difference.text);
}

void Collectives::disagree(const Difference& difference, TimePoint deadline) {
  Verdict verdict;
  verdict.a = difference.a;
  verdict.b = difference.b;
  verdict.bytes = std::min(difference.text.size(), kMaxWords);
  std::memcpy(verdicts_.data(), &verdict, sizeof verdict);
  std::memcpy(verdicts_.data() + sizeof verdict, difference.text.data(), verdict.bytes);
  std::vector<std::unique_ptr<Transfer>> sends;
  for (int to = 1; to < size_; ++to)
    sends.push_back(
        transport_.send(to, std::span(verdicts_).first(sizeof verdict + verdict.bytes)));
  for (auto& send : sends) static_cast<void>(send->wait(deadline));
  throw_difference(difference, rank_);
}

bool Collectives::follow(const Call& call, TimePoint deadline) {
  Notice notice = Notice::of(call, rank_);
  notice.has_data = bytes_of(call, notice.total_in(size_)) <= small_;
  const auto data = notice.has_data ? small_input(call, notice) : std::span<const std::byte>();
  notice.write(message_, data);
  std::array<Pending, 2> round_trip{Pending{0, transport_.receive(0, verdicts_)},
                                    Pending{0, transport_.send(0, message_)}};
  complete(call, round_trip, deadline);

  Verdict verdict;
  std::memcpy(&verdict, verdicts_.data(), sizeof verdict);
  const auto behind = std::span(verdicts_).subspan(sizeof verdict);
  const auto bytes = std::min<std::size_t>(verdict.bytes, behind.size());
  if (verdict.agreed == 0) {
    const std::string words(reinterpret_cast<const char*>(behind.data()), bytes);
    throw_difference({verdict.a, verdict.b, words}, rank_);
  }
  if (verdict.small != 0) take_small_result(call, behind.first(bytes));
  return verdict.small != 0 || call.op == OpType::barrier;
}

// ---- small data --------------------------------------------------------------------------------

// What this rank puts in, in one run.
std::span<const std::byte> Collectives::small_input(const Call& call, const Notice& notice) {
  input_.resize(bytes_of(call, notice.total_in(size_)));
  if (input_.empty()) return {};
  if (call.ins.empty()) {
    prepare(call.dtype, call.reduce, call.factor, input_.data(), call.in, call.count);
    return input_;
  }
  std::byte* at = input_.data();
  for (const ConstPart& part : call.ins) {
    prepare(call.dtype, call.reduce, call.factor, at, part.data, part.count);
    at += bytes_of(call, part.count);
  }
  return input_;
}

// Each rank's result behind its verdict, rank 0's own too.
void Collectives::combine_small(const Call& call, std::span<const Notice> notices) {
  const std::size_t room = verdicts_.size() / notices.size();
  const auto result = [&](std::size_t rank) {
    return verdicts_.data() + room * rank + sizeof(Verdict);
  };
  const auto root = static_cast<std::size_t>(call.root);
  // Offset of the part for `rank` in what `from` put in.
  const auto part_at = [&](const Notice& from, std::size_t rank) {
    std::uint64_t before = from.in_each * rank;
    if (!from.ins.empty()) {
      before = 0;
      for (std::size_t i = 0; i < rank; ++i) before += from.ins[i];
    }
    return from.data.data() + bytes_of(call, before);
  };
  std::vector<const void*> inputs(notices.size());
  switch (call.op) {
    case OpType::broadcast:
      for (std::size_t to = 0; to < notices.size(); ++to)
        if (to != root)
          copy_bytes(result(to), notices[root].data.data(), bytes_of(call, call.count));
      return;
    case OpType::all_reduce:
    case OpType::reduce: {
      for (std::size_t i = 0; i < notices.size(); ++i) inputs[i] = notices[i].data.data();
      std::byte* const first = result(root);
      if (call.count == 0) return;
      combine_all(call.dtype, call.reduce, first, inputs, call.count);
      finish(call.dtype, call.reduce, first, call.count, size_);
      if (call.op == OpType::reduce) return;
      for (std::size_t to = 0; to < notices.size(); ++to)
        copy_bytes(result(to), first, bytes_of(call, call.count));
      return;
    }
    case OpType::reduce_scatter:
      for (std::size_t to = 0; to < notices.size(); ++to) {
        for (std::size_t i = 0; i < notices.size(); ++i) inputs[i] = part_at(notices[i], to);
        const std::uint64_t count = notices[to].call.count;
        if (count == 0) continue;
        combine_all(call.dtype, call.reduce, result(to), inputs, count);
        finish(call.dtype, call.reduce, result(to), count, size_);
      }
      return;
    case OpType::all_gather:
    case OpType::gather:
      for (std::size_t to = 0; to < notices.size(); ++to) {
        if (call.op == OpType::gather && to != root) continue;
        std::byte* at = result(to);
        for (const Notice& from : notices) {
          copy_bytes(at, from.data.data(), from.data.size());
          at += from.data.size();
        }
      }
      return;
    case OpType::scatter:
      for (std::size_t to = 0; to < notices.size(); ++to)
        copy_bytes(result(to), part_at(notices[root], to), bytes_of(call, notices[to].call.count));
      return;
    case OpType::all_to_all:
      for (std::size_t to = 0; to < notices.size(); ++to) {
        std::byte* at = result(to);
        for (const Notice& from : notices) {
          const std::size_t bytes = bytes_of(call, from.in_of(static_cast<int>(to)));
          copy_bytes(at, part_at(from, to), bytes);
          at += bytes;
        }
      }
      return;
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return;
  }
}

void Collectives::take_small_result(const Call& call, std::span<const std::byte> result) {
  const std::byte* at = result.data();
  const bool gets =
      call.op != OpType::barrier && (call.op != OpType::broadcast || rank_ != call.root) &&
      ((call.op != OpType::reduce && call.op != OpType::gather) || rank_ == call.root);
  if (!gets) return;
  if (call.outs.empty()) return copy_bytes(call.out, at, bytes_of(call, call.count));
  for (const Part& part : call.outs) {
    copy_bytes(part.data, at, bytes_of(call, part.count));
    at += bytes_of(call, part.count);
  }
}

// ---- larger data -------------------------------------------------------------------------------

// Waits for all of them; whoever asks meanwhile is told whom for.
void Collectives::complete(const Call& call, std::span<Pending> pending, TimePoint deadline) {
  const TimePoint start = Clock::now();
  TimePoint tell = start + kSlow;
  for (;;) {
    std::vector<int> absent;
    for (Pending& each : pending) {
      if (!each.transfer) continue;
      if (each.transfer->wait(std::min(tell, deadline)))
        each.transfer.reset();
      else if (std::find(absent.begin(), absent.end(), each.peer) == absent.end())
        absent.push_back(each.peer);
    }
    if (absent.empty()) return;
    if (Clock::now() >= deadline) throw PeersLate(std::move(absent), true);
    waiting_(call, absent);
    tell = tell_next(start);
  }
}

void Collectives::send(const Call& call, int peer, std::span<const std::byte> message,
                       TimePoint deadline) {
  std::array<Pending, 1> sent{Pending{peer, transport_.send(peer, message)}};
  complete(call, sent, deadline);
}

void Collectives::receive(const Call& call, int peer, std::span<std::byte> room,
                          TimePoint deadline) {
  std::array<Pending, 1> received{Pending{peer, transport_.receive(peer, room)}};
  complete(call, received, deadline);
}

// One step of a ring.  Both sides know the sizes, so nothing is sent for an empty piece.
void Collectives::exchange(const Call& call, std::span<const std::byte> to_right,
                           std::span<std::byte> from_left, TimePoint deadline) {
  std::array<Pending, 2> both;
  if (!from_left.empty()) both[0] = {left(), transport_.receive(left(), from_left)};
  if (!to_right.empty()) both[1] = {right(), transport_.send(right(), to_right)};
  complete(call, both, deadline);
}

// Nearly equal pieces of the data of one rank, one for each rank.
Collectives::Pieces Collectives::even_pieces(const Call& call) const {
  const auto n = static_cast<std::uint64_t>(size_);
  const std::size_t width = size_of(call.dtype);
  Pieces pieces;
  std::uint64_t start = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const std::uint64_t count = call.count / n + (i < call.count % n ? 1 : 0);
    pieces.push_back({start * width, count * width});
    start += count;
  }
  return pieces;
}

void Collectives::broadcast_tree(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_of(call, call.count);
  const int place = wrap(rank_ - call.root);  // 0: the root
  const auto at = [&](int other) { return wrap(other + call.root); };
  const auto top = static_cast<int>(std::bit_floor(static_cast<unsigned>(size_ - 1)));
  const int own = place == 0 ? 2 * top : place & -place;  // the lowest bit of the place
  if (place != 0) receive(call, at(place - own), {call.out, bytes}, deadline);
  std::vector<Pending> sends;
  for (int bit = own / 2; bit > 0; bit /= 2) {
    if (place + bit >= size_) continue;
    sends.push_back({at(place + bit), transport_.send(at(place + bit), {call.out, bytes})});
  }
  complete(call, sends, deadline);
}

// Afterwards piece rank_ of `data` holds the result, the others what came by.
void Collectives::reduce_scatter_ring(const Call& call, const Pieces& pieces, std::byte* data,
                                      TimePoint deadline) {
  std::size_t largest = 0;
  for (const Piece& piece : pieces) largest = std::max(largest, piece.bytes);
  scratch_.resize(largest);
  const auto piece = [&](int index) { return pieces[static_cast<std::size_t>(wrap(index))]; };
  const std::size_t width = size_of(call.dtype);
  for (int step = 0; step < size_ - 1; ++step) {
    const Piece out = piece(rank_ - step - 1);
    const Piece in = piece(rank_ - step - 2);
    exchange(call, {data + out.offset, out.bytes}, {scratch_.data(), in.bytes}, deadline);
    combine(call.dtype, call.reduce, data + in.offset, scratch_.data(), in.bytes / width);
  }
  const Piece mine = piece(rank_);
  finish(call.dtype, call.reduce, data + mine.offset, mine.bytes / width, size_);
}

void Collectives::all_reduce_ring(const Call& call, TimePoint deadline) {
  const Pieces pieces = even_pieces(call);
  const auto piece = [&](int index) { return pieces[static_cast<std::size_t>(wrap(index))]; };
  std::byte* const data = call.out;
  prepare(call.dtype, call.reduce, call.factor, data, call.in, call.count);
  reduce_scatter_ring(call, pieces, data, deadline);
  for (int step = 0; step < size_ - 1; ++step) {
    const Piece out = piece(rank_ - step);
    const Piece in = piece(rank_ - step - 1);
    exchange(call, {data + out.offset, out.bytes}, {data + in.offset, in.bytes}, deadline);
  }
}

void Collectives::reduce_ring(const Call& call, TimePoint deadline) {
  const Pieces pieces = even_pieces(call);
  std::byte* data = call.out;
  if (rank_ != call.root) {  // whose data stays as it is
    input_.resize(bytes_of(call, call.count));
    data = input_.data();
  }
  prepare(call.dtype, call.reduce, call.factor, data, call.in, call.count);
  reduce_scatter_ring(call, pieces, data, deadline);
  const Piece mine = pieces[static_cast<std::size_t>(rank_)];
  if (rank_ != call.root) {
    if (mine.bytes > 0) send(call, call.root, {data + mine.offset, mine.bytes}, deadline);
    return;
  }
  std::vector<Pending> receives;
  for (int peer = 0; peer < size_; ++peer) {
    const Piece& its = pieces[static_cast<std::size_t>(peer)];
    if (peer != rank_ && its.bytes > 0)
      receives.push_back({peer, transport_.receive(peer, {data + its.offset, its.bytes})});
  }
  complete(call, receives, deadline);
}

void Collectives::reduce_scatter(const Call& call, TimePoint deadline) {
  Pieces pieces;
  std::size_t total = 0;
  for (const ConstPart& part : call.ins) {
    pieces.push_back({total, bytes_of(call, part.count)});
    total += pieces.back().bytes;
  }
  input_.resize(total);
  for (std::size_t i = 0; i < pieces.size(); ++i)
    prepare(call.dtype, call.reduce, call.factor, input_.data() + pieces[i].offset,
            call.ins[i].data, call.ins[i].count);
  reduce_scatter_ring(call, pieces, input_.data(), deadline);
  const Piece mine = pieces[static_cast<std::size_t>(rank_)];
  copy_bytes(call.out, input_.data() + mine.offset, mine.bytes);
}

void Collectives::all_gather_ring(const Call& call, TimePoint deadline) {
  const auto block = [&](int index) -> std::span<std::byte> {
    const Part& part = call.outs[static_cast<std::size_t>(wrap(index))];
    return {part.data, bytes_of(call, part.count)};
  };
  copy_bytes(block(rank_).data(), call.in, bytes_of(call, call.count));
  for (int step = 0; step < size_ - 1; ++step)
    exchange(call, block(rank_ - step), block(rank_ - step - 1), deadline);
}

void Collectives::gather(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_of(call, call.count);
  if (rank_ != call.root) {
    if (bytes > 0) send(call, call.root, {call.in, bytes}, deadline);
    return;
  }
  // First of all: its memory may be another rank's part of the outputs.
  copy_bytes(call.outs[static_cast<std::size_t>(rank_)].data, call.in, bytes);
  std::vector<Pending> receives;
  for (int peer = 0; peer < size_; ++peer) {
    const Part& part = call.outs[static_cast<std::size_t>(peer)];
    if (peer != rank_ && part.count > 0)
      receives.push_back({peer, transport_.receive(peer, {part.data, bytes_of(call, part.count)})});
  }
  complete(call, receives, deadline);
}

void Collectives::scatter(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_of(call, call.count);
  if (rank_ != call.root) {
    if (bytes > 0) receive(call, call.root, {call.out, bytes}, deadline);
    return;
  }
  std::vector<Pending> sends;
  for (int peer = 0; peer < size_; ++peer) {
    const ConstPart& part = call.ins[static_cast<std::size_t>(peer)];
    if (peer != rank_ && part.count > 0)
      sends.push_back({peer, transport_.send(peer, {part.data, bytes_of(call, part.count)})});
  }
  complete(call, sends, deadline);
  // Last of all: its memory may be another rank's part of the inputs.
  copy_bytes(call.out, call.ins[static_cast<std::size_t>(rank_)].data, bytes);
}

// All at once; each begins with the rank after it, so that not all send to one.
void Collectives::all_to_all(const Call& call, TimePoint deadline) {
  // Of memory that is both, what comes in must not be sent on.
  std::vector<ConstPart> ins = call.ins;
  if (overlap(call)) {
    std::size_t total = 0;
    for (const ConstPart& part : ins) total += bytes_of(call, part.count);
    input_.resize(total);
    std::byte* at = input_.data();
    for (ConstPart& part : ins) {
      copy_bytes(at, part.data, bytes_of(call, part.count));
      part.data = std::exchange(at, at + bytes_of(call, part.count));
    }
  }
  std::vector<Pending> transfers;
  for (int step = 1; step < size_; ++step) {
    const int from = wrap(rank_ - step);
    const Part& part = call.outs[static_cast<std::size_t>(from)];
    if (part.count > 0)
      transfers.push_back(
          {from, transport_.receive(from, {part.data, bytes_of(call, part.count)})});
  }
  for (int step = 1; step < size_; ++step) {
    const int to = wrap(rank_ + step);
    const ConstPart& part = ins[static_cast<std::size_t>(to)];
    if (part.count > 0)
      transfers.push_back({to, transport_.send(to, {part.data, bytes_of(call, part.count)})});
  }
  const auto own = static_cast<std::size_t>(rank_);
  copy_bytes(call.outs[own].data, ins[own].data, bytes_of(call, ins[own].count));
  complete(call, transfers, deadline);
}

}  // namespace distrun
