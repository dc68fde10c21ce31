#include "runtime/worker/shm/runner.h"

#include "runtime/base/check.h"
#include "runtime/worker/reduction.h"

#include <algorithm>
#include <cstring>

namespace distrun::shm {
namespace {

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

std::size_t bytes_of(const Call& call) {
  return call.count * size_of(call.dtype);
}

// Elements of 16 bytes are the widest.
bool sound(std::uint64_t base, std::uint64_t at) {
  return base % 16 == 0 && base <= Lent::kNot - at;
}

}  // namespace

Tuning tuning_for(const Layout& layout, Placement placement) {
  constexpr std::size_t kKiB = 1024;
  // Where ranks share CPUs a synchronisation costs more than some data.
  const bool crowded = placement == Placement::crowded;
  Tuning tuning;
  tuning.flat_bytes = crowded ? 16 * kKiB : 4 * kKiB;
  tuning.chunk_bytes = layout.data_bytes;
  tuning.lend_bytes = 32 * kKiB;
  tuning.lent_chunk_bytes = 8192 * kKiB;
  return tuning;
}

Runner::Runner(Membership membership, const Tuning& tuning)
    : heaps_(std::move(membership.heaps)),
      heap_(heaps_.empty() ? nullptr : Heap::if_made()),
      ranks_(std::move(membership)),
      tuning_(tuning),
      rank_(ranks_.rank()),
      size_(ranks_.size()),
      inputs_(static_cast<std::size_t>(size_)),
      block_(static_cast<std::size_t>(size_)),
      lent_(static_cast<std::size_t>(size_)) {
  DISTRUN_CHECK(tuning_.flat_bytes <= ranks_.data_bytes());
  DISTRUN_CHECK(tuning_.chunk_bytes <= ranks_.data_bytes());
  DISTRUN_CHECK(tuning_.lend_bytes > tuning_.flat_bytes);
}

void Runner::run(const Call& call, TimePoint deadline) {
  try {
    dispatch(call, deadline);
  } catch (const PeerLost& lost) {
    ranks_.leave(Leave::lost, lost.peer);
    throw;
  } catch (const PeersLate& late) {
    ranks_.leave_late(late.peers);
    throw;
  } catch (const CallsDiffer&) {
    ranks_.leave(Leave::differs);
    throw;
  } catch (...) {
    ranks_.leave(Leave::closed);
    throw;
  }
}

void Runner::dispatch(const Call& call, TimePoint deadline) {
  begin(call);
  switch (call.op) {
    case OpType::barrier:
      return barrier(deadline);
    case OpType::broadcast:
      return broadcast(call, deadline);
    case OpType::all_reduce:
    case OpType::reduce:
      return bytes_of(call) <= tuning_.flat_bytes ? reduce_flat(call, deadline)
                                                  : reduce_shares(call, deadline);
    case OpType::all_gather:
    case OpType::gather:
      return gather(call, deadline);
    case OpType::scatter:
      return scatter(call, deadline);
    case OpType::reduce_scatter:
      return reduce_scatter(call, deadline);
    case OpType::all_to_all:
      return all_to_all(call, deadline);
    case OpType::send:
    case OpType::recv:
      break;
  }
  DISTRUN_CHECK(false);  // not a collective
}

void Runner::begin(const Call& call) {
  ranks_.require_member();
  Fingerprint& print = ranks_.call();
  print = fingerprint_of(call);
  if (print.kind == Parts::uneven) write_table(call, ranks_.table());
}

// The first round of every call: nothing of this rank's results is touched before it.
void Runner::agree(TimePoint deadline) {
  ranks_.publish();
  try {
    ranks_.await_all(deadline);
  } catch (const PeerLost&) {
    compare_calls(false);
    throw;
  } catch (const PeersLate&) {
    compare_calls(false);
    throw;
  }
  compare_calls(true);
}

void Runner::compare_calls(bool all_have_come) {
  if (all_have_come && agreed(ranks_.calls())) return;
  const auto found = compare(ranks_.said(), size_);
  if (found) throw CallsDiffer(found->second == rank_ ? found->first : found->second, found->text);
}

std::optional<Lent> Runner::lend(const Call& call, const std::byte* in, const std::byte* out,
                                 std::uint64_t bytes, std::uint64_t largest) const {
  // What is scaled on its way has to be put somewhere else.
  if (heap_ == nullptr || call.reduce == ReduceOp::premul_sum) return std::nullopt;
  if (largest < tuning_.lend_bytes) return std::nullopt;
  if (bytes == 0) return Lent{0, 0};
  const auto in_at = heap_->offset_of(in, bytes);
  const auto out_at = heap_->offset_of(out, bytes);
  const auto apart = [&] { return in + bytes <= out || out + bytes <= in; };
  if (!in_at || !out_at || (in != out && !apart())) return std::nullopt;
  if (!sound(*in_at, 0) || !sound(*out_at, 0)) return std::nullopt;
  return Lent{*in_at, *out_at};
}

// What goes to each rank lies one behind the other, and nothing of it is overwritten while others
// read it.
std::optional<Lent> Runner::lend_parts(const Call& call, bool all_alike) const {
  const std::size_t width = size_of(call.dtype);
  const auto& ins = call.ins;
  if (ins.empty()) return std::nullopt;
  const std::byte* end = ins.front().data;
  for (const ConstPart& part : ins) {
    if (part.data != end || (all_alike && part.count != ins.front().count)) return std::nullopt;
    end += part.count * width;
  }
  const std::byte* const begin = ins.front().data;
  const auto spoils = [&](const std::byte* out, std::uint64_t count) {
    const bool is_own = out == ins[static_cast<std::size_t>(rank_)].data;
    return count > 0 && !is_own && out < end && begin < out + count * width;
  };
  if (call.out != nullptr && spoils(call.out, call.count)) return std::nullopt;
  for (const Part& part : call.outs)
    if (part.count > 0 && part.data < end && begin < part.data + part.count * width)
      return std::nullopt;
  const auto bytes = static_cast<std::uint64_t>(end - begin);
  return lend(call, begin, begin, bytes, bytes);
}

const std::byte* Runner::read(int peer, std::uint64_t base, std::uint64_t at,
                              std::uint64_t bytes) const {
  const HeapView& heap = *heaps_[static_cast<std::size_t>(peer)];
  const std::byte* const data = sound(base, at) ? heap.at(base + at, bytes) : nullptr;
  if (data == nullptr) throw PeerLost(peer, "it has told of memory that it does not have");
  return data;
}
const std::byte* Runner::read_in(int peer, std::uint64_t at, std::uint64_t bytes) const {
  return read(peer, lent_[static_cast<std::size_t>(peer)].in, at, bytes);
}
const std::byte* Runner::read_out(int peer, std::uint64_t at, std::uint64_t bytes) const {
  return read(peer, lent_[static_cast<std::size_t>(peer)].out, at, bytes);
}

template <class Fill>
bool Runner::meet(const Call& call, Givers givers, const std::optional<Lent>& mine,
                  TimePoint deadline, Fill fill) {
  ranks_.lend(mine.value_or(Lent()));
  if (!mine) fill();
  agree(deadline);
  int give = 0;
  int lend = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const bool is_root = rank == call.root;
    if (givers == (is_root ? Givers::all_but_root : Givers::root)) continue;
    Lent& its = lent_[static_cast<std::size_t>(rank)] = ranks_.lent(rank);
    ++give;
    if (its.in != Lent::kNot) ++lend;
  }
  if (lend == 0 || lend == give) return lend > 0;
  begin(call);  // whoever looks for the largest part looks in the current round
  fill();
  ranks_.publish();
  ranks_.await_all(deadline);
  return false;
}

// Who has given up meanwhile may have used its tensors again before they were read here.  In good
// order nobody leaves before this rank has said that it has read them.
void Runner::all_have_read(TimePoint deadline) {
  ranks_.require_all();
  ranks_.publish();
  ranks_.await_all(deadline);
}

template <class Fill, class Drain>
void Runner::rounds(std::size_t width, std::size_t unit, TimePoint deadline, Fill fill,
                    Drain drain) {
  std::uint64_t largest = 0;
  int whose = 0;
  for (int rank = 0; rank < size_; ++rank) {
    const std::uint64_t its = ranks_.calls()[static_cast<std::size_t>(rank)]->largest;
    if (its > largest) whose = rank;
    largest = std::max(largest, its);
  }
  const std::uint64_t count = pieces_in(largest, unit / width);
  drain(0);
  for (std::uint64_t round = 1; round < count; ++round) {
    // Only somebody else may know how many rounds there are: that must not go on for ever.
    if (Clock::now() >= deadline) throw PeersLate({whose});
    fill(round);
    ranks_.publish();
    ranks_.await_all(deadline);
    drain(round);
  }
}

void Runner::barrier(TimePoint deadline) {
  agree(deadline);
}

void Runner::broadcast(const Call& call, TimePoint deadline) {
  const std::size_t bytes = bytes_of(call);
  const std::size_t unit = tuning_.chunk_bytes;
  const bool is_root = rank_ == call.root;
  const auto fill = [&](std::uint64_t round) {
    const Extent piece = piece_of(bytes, unit, round);
    if (is_root) copy_bytes(ranks_.data(), call.in + piece.at, piece.size);
  };
  const auto mine = is_root ? lend(call, call.in, call.in, bytes, bytes) : std::nullopt;
  if (meet(call, Givers::root, mine, deadline, [&] { fill(0); })) {
    copy_bytes(call.out, is_root ? call.in : read_in(call.root, 0, bytes), bytes);
    return all_have_read(deadline);
  }
  rounds(size_of(call.dtype), unit, deadline, fill, [&](std::uint64_t round) {
    const Extent piece = piece_of(bytes, unit, round);
    const std::byte* from = is_root ? call.in + piece.at : ranks_.data(call.root);
    copy_bytes(call.out + piece.at, from, piece.size);
  });
}

void Runner::reduce_flat(const Call& call, TimePoint deadline) {
  const bool in_line = bytes_of(call) <= kInlineBytes;
  std::byte* const mine = in_line ? ranks_.inline_data() : ranks_.data();
  prepare(call.dtype, call.reduce, call.factor, mine, call.in, call.count);
  agree(deadline);
  if (call.op == OpType::reduce && rank_ != call.root) return;
  for (int peer = 0; peer < size_; ++peer)
    inputs_[static_cast<std::size_t>(peer)] =
        in_line ? ranks_.inline_data(peer) : ranks_.data(peer);
  combine_all(call.dtype, call.reduce, call.out, inputs_, call.count);
  finish(call.dtype, call.reduce, call.out, call.count, size_);
}

void Runner::combine(const Call& call, std::byte* target, std::byte* also, std::size_t count) {
  const std::size_t width = size_of(call.dtype);
  const std::size_t block = std::size_t{8192} / width;  // stays in the first-level cache
  for (std::size_t at = 0; at < count; at += block) {
    const std::size_t n = std::min(block, count - at);
    for (std::size_t i = 0; i < inputs_.size(); ++i)
      block_[i] = static_cast<const std::byte*>(inputs_[i]) + at * width;
    combine_all(call.dtype, call.reduce, target + at * width, block_, n);
    finish(call.dtype, call.reduce, target + at * width, n, size_);
    if (also != nullptr) copy_bytes(also + at * width, target + at * width, n * width);
  }
}

void Runner::reduce_shares(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const bool for_all = call.op == OpType::all_reduce;
  const bool wants_result = for_all || rank_ == call.root;
  const bool scales = call.reduce == ReduceOp::premul_sum;
  std::size_t area = area_bytes(tuning_.chunk_bytes, size_);
  // Of chunk `index`, in elements from the start of the data.
  const auto chunk = [&] { return area / width * static_cast<std::uint64_t>(size_); };
  const auto share = [&](std::uint64_t index, int rank) {
    const Extent whole = piece_of(call.count, chunk(), index);
    const Extent own = share_of(whole.size, width, size_, rank);
    return Extent{whole.at + own.at, own.size};
  };
  const auto staged = [&](int rank) { return static_cast<std::size_t>(rank) * area; };
  const auto fill = [&](std::uint64_t index) {
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const Extent its = share(index, peer);
      prepare(call.dtype, call.reduce, call.factor, ranks_.data() + staged(peer),
              call.in + its.at * width, its.size);
    }
  };

  const auto mine =
      lend(call, call.in, for_all ? call.out : call.in, bytes_of(call), bytes_of(call));
  const bool lent = meet(call, Givers::all, mine, deadline, [&] { fill(0); });
  // Of a reduce only the root has memory for results.
  const bool in_place = lent && for_all;
  if (in_place) area = area_bytes(tuning_.lent_chunk_bytes, size_);
  const std::uint64_t chunks = pieces_in(call.count, chunk());

  for (std::uint64_t round = 0; round <= chunks; ++round) {
    if (round > 0) {
      if (!lent && round < chunks) fill(round);
      ranks_.publish();
      ranks_.await_all(deadline);
    }
    if (round < chunks) {
      const Extent own = share(round, rank_);
      const std::size_t at = own.at * width;
      // Staged: of the coming round, which carries it to the others; they have read the one before.
      std::byte* const target = in_place ? call.out + at : ranks_.data() + staged(rank_);
      for (int peer = 0; peer < size_; ++peer)
        inputs_[static_cast<std::size_t>(peer)] =
            lent ? read_in(peer, at, own.size * width) : ranks_.data(peer) + staged(rank_);
      inputs_[static_cast<std::size_t>(rank_)] = call.in + at;
      if (scales) {
        prepare(call.dtype, call.reduce, call.factor, target, call.in + at, own.size);
        inputs_[static_cast<std::size_t>(rank_)] = target;
      }
      combine(call, target, wants_result && !in_place ? call.out + at : nullptr, own.size);
    }
    for (int step = 1; round > 0 && wants_result && step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Extent its = share(round - 1, peer);
      const std::size_t at = its.at * width;
      copy_bytes(call.out + at,
                 in_place ? read_out(peer, at, its.size * width) : ranks_.data(peer) + staged(peer),
                 its.size * width);
    }
  }
  if (lent) all_have_read(deadline);
}

void Runner::gather(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const std::size_t unit = tuning_.chunk_bytes;
  const bool takes = call.op == OpType::all_gather || rank_ == call.root;
  const bool gives = call.op == OpType::all_gather || rank_ != call.root;
  const auto fill = [&](std::uint64_t round) {
    const Extent piece = piece_of(bytes_of(call), unit, round);
    if (gives) copy_bytes(ranks_.data(), call.in + piece.at, piece.size);
  };
  const Givers givers = call.op == OpType::all_gather ? Givers::all : Givers::all_but_root;
  std::uint64_t largest = bytes_of(call);
  for (const Part& part : call.outs) largest = std::max(largest, part.count * width);
  const auto mine = gives ? lend(call, call.in, call.in, bytes_of(call), largest) : std::nullopt;
  if (meet(call, givers, mine, deadline, [&] { fill(0); })) {
    for (int step = 0; takes && step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Part& part = call.outs[static_cast<std::size_t>(peer)];
      const std::size_t bytes = part.count * width;
      copy_bytes(part.data, peer == rank_ ? call.in : read_in(peer, 0, bytes), bytes);
    }
    return all_have_read(deadline);
  }
  rounds(width, unit, deadline, fill, [&](std::uint64_t round) {
    for (int step = 0; takes && step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Part& part = call.outs[static_cast<std::size_t>(peer)];
      const Extent piece = piece_of(part.count * width, unit, round);
      copy_bytes(part.data + piece.at, peer == rank_ ? call.in + piece.at : ranks_.data(peer),
                 piece.size);
    }
  });
}

void Runner::scatter(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const std::size_t area = area_bytes(tuning_.chunk_bytes, size_);
  const auto fill = [&](std::uint64_t round) {
    for (int peer = 0; rank_ == call.root && peer < size_; ++peer) {
      if (peer == rank_) continue;
      const ConstPart& part = call.ins[static_cast<std::size_t>(peer)];
      const Extent piece = piece_of(part.count * width, area, round);
      copy_bytes(ranks_.data() + area * static_cast<std::size_t>(peer), part.data + piece.at,
                 piece.size);
    }
  };
  const auto mine = rank_ == call.root ? lend_parts(call, true) : std::nullopt;
  if (meet(call, Givers::root, mine, deadline, [&] { fill(0); })) {
    const std::size_t bytes = bytes_of(call);
    const auto me = static_cast<std::size_t>(rank_);
    copy_bytes(call.out,
               rank_ == call.root ? call.ins[me].data : read_in(call.root, me * bytes, bytes),
               bytes);
    return all_have_read(deadline);
  }
  rounds(width, area, deadline, fill, [&](std::uint64_t round) {
    const Extent piece = piece_of(bytes_of(call), area, round);
    const std::byte* const from =
        rank_ == call.root ? call.ins[static_cast<std::size_t>(rank_)].data + piece.at
                           : ranks_.data(call.root) + area * static_cast<std::size_t>(rank_);
    copy_bytes(call.out + piece.at, from, piece.size);
  });
}

void Runner::reduce_scatter(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const std::size_t area = area_bytes(tuning_.chunk_bytes, size_);
  const auto me = static_cast<std::size_t>(rank_);
  const auto fill = [&](std::uint64_t round) {
    for (std::size_t peer = 0; peer < call.ins.size(); ++peer) {
      const Extent piece = piece_of(call.ins[peer].count, area / width, round);
      // The own one too only if it is changed on the way.
      if (peer == me && call.reduce != ReduceOp::premul_sum) continue;
      prepare(call.dtype, call.reduce, call.factor, ranks_.data() + area * peer,
              call.ins[peer].data + piece.at * width, piece.size);
    }
  };
  if (meet(call, Givers::all, lend_parts(call, false), deadline, [&] { fill(0); })) {
    const std::size_t bytes = bytes_of(call);
    const auto at = static_cast<std::uint64_t>(call.ins[me].data - call.ins.front().data);
    for (int peer = 0; peer < size_; ++peer)
      inputs_[static_cast<std::size_t>(peer)] = read_in(peer, at, bytes);
    inputs_[me] = call.ins[me].data;
    combine(call, call.out, nullptr, call.count);
    return all_have_read(deadline);
  }
  rounds(width, area, deadline, fill, [&](std::uint64_t round) {
    const Extent piece = piece_of(call.count, area / width, round);
    for (int peer = 0; peer < size_; ++peer)
      inputs_[static_cast<std::size_t>(peer)] = ranks_.data(peer) + area * me;
    if (call.reduce != ReduceOp::premul_sum) inputs_[me] = call.ins[me].data + piece.at * width;
    // By way of the own area of the coming round, which is read by nobody: `out` may be the
    // input.
    std::byte* const out = call.out + piece.at * width;
    const bool in_place = inputs_[me] == out;
    combine(call, in_place ? ranks_.data() + area * me : out, in_place ? out : nullptr, piece.size);
  });
}

void Runner::all_to_all(const Call& call, TimePoint deadline) {
  const std::size_t width = size_of(call.dtype);
  const std::size_t area = area_bytes(tuning_.chunk_bytes, size_);
  const auto me = static_cast<std::size_t>(rank_);
  const auto fill = [&](std::uint64_t round) {
    for (std::size_t peer = 0; peer < call.ins.size(); ++peer) {
      const Extent piece = piece_of(call.ins[peer].count * width, area, round);
      if (peer != me)
        copy_bytes(ranks_.data() + area * peer, call.ins[peer].data + piece.at, piece.size);
    }
  };
  if (meet(call, Givers::all, lend_parts(call, true), deadline, [&] { fill(0); })) {
    for (int step = 0; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Part& part = call.outs[static_cast<std::size_t>(peer)];
      const std::size_t bytes = part.count * width;
      copy_bytes(part.data, peer == rank_ ? call.ins[me].data : read_in(peer, me * bytes, bytes),
                 bytes);
    }
    return all_have_read(deadline);
  }
  rounds(width, area, deadline, fill, [&](std::uint64_t round) {
    for (int step = 0; step < size_; ++step) {
      const int peer = (rank_ + step) % size_;
      const Part& part = call.outs[static_cast<std::size_t>(peer)];
      const Extent piece = piece_of(part.count * width, area, round);
      copy_bytes(part.data + piece.at,
                 peer == rank_ ? call.ins[me].data + piece.at : ranks_.data(peer) + area * me,
                 piece.size);
    }
  });
}

}  // namespace distrun::shm
