#include "runtime/worker/agreement.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace distrun {
namespace {

constexpr std::uint32_t kMagic = 0x64725234;  // changes with the layout

enum Flag : std::uint8_t { kUnevenIns = 1, kUnevenOuts = 2, kData = 4 };

struct Header {
  std::uint32_t magic = kMagic;
  std::uint8_t op = 0;
  std::uint8_t reduce = 0;
  std::uint8_t dtype = 0;
  std::uint8_t flags = 0;
  std::uint64_t sequence = 0;
  std::uint64_t count = 0;
  std::uint64_t in_each = 0;
  std::uint64_t out_each = 0;
  std::int32_t root = 0;
  std::int32_t rank = 0;
  std::uint64_t data_bytes = 0;
  std::int32_t layout = 0;
  std::int32_t unused = 0;
};
static_assert(sizeof(Header) == 64);

// One number if all are alike.
template <class P>
void sizes_of(const std::vector<P>& parts, std::uint64_t& each,
              std::vector<std::uint64_t>& uneven) {
  if (parts.empty()) return;
  each = parts.front().count;
  if (std::all_of(parts.begin(), parts.end(), [&](const P& part) { return part.count == each; }))
    return;
  for (const P& part : parts) uneven.push_back(part.count);
}

std::uint64_t sum(const std::vector<std::uint64_t>& uneven, std::uint64_t each, int size) {
  std::uint64_t total = uneven.empty() ? each * static_cast<std::uint64_t>(size) : 0;
  for (const std::uint64_t count : uneven) total += count;
  return total;
}

bool counts_alike(OpType op) {
  return op == OpType::broadcast || op == OpType::all_reduce || op == OpType::reduce;
}

std::string differing(const Call& a, const Call& b) {
  std::string what;
  const auto compare = [&](bool differs, const char* name) {
    if (differs) what += (what.empty() ? "" : ", ") + std::string(name);
  };
  compare(a.op != b.op, "the operation");
  compare(a.sequence != b.sequence, "its number");
  compare(a.dtype != b.dtype, "the element type");
  compare(counts_alike(a.op) && a.count != b.count, "the count");
  compare(a.reduce != b.reduce, "the reduce operation");
  compare(a.root != b.root, "the root");
  compare(a.layout != b.layout, "the sizes of the tensors");
  return what;
}

std::string words(const Notice& notice) {
  return "rank " + std::to_string(notice.rank) + " called " + to_string(notice.call);
}

// `giver` has `given` elements for `taker`, who expects `taken`.
Difference unfit(const Notice& giver, std::uint64_t given, const Notice& taker,
                 std::uint64_t taken) {
  std::string text = words(giver) + " with " + std::to_string(given) + " for rank " +
                     std::to_string(taker.rank) + ", which called " + to_string(taker.call) +
                     " with room for " + std::to_string(taken) + ": they differ in the count";
  return {giver.rank, taker.rank, std::move(text)};
}

std::optional<Difference> unlike_parts(std::span<const Notice> all) {
  const OpType op = all[0].call.op;
  const auto root = static_cast<std::size_t>(all[0].call.root);
  const auto p = all.size();
  for (std::size_t i = 0; i < p; ++i) {
    for (std::size_t j = 0; j < p; ++j) {
      const auto to = static_cast<int>(j);
      const auto from = static_cast<int>(i);
      switch (op) {
        case OpType::all_gather:
        case OpType::gather:
          if (op == OpType::gather && j != root) continue;
          if (all[i].call.count != all[j].out_of(from))
            return unfit(all[i], all[i].call.count, all[j], all[j].out_of(from));
          continue;
        case OpType::scatter:
        case OpType::reduce_scatter:
          if (op == OpType::scatter && i != root) continue;
          if (all[i].in_of(to) != all[j].call.count)
            return unfit(all[i], all[i].in_of(to), all[j], all[j].call.count);
          continue;
        case OpType::all_to_all:
          if (all[i].in_of(to) != all[j].out_of(from))
            return unfit(all[i], all[i].in_of(to), all[j], all[j].out_of(from));
          continue;
        case OpType::broadcast:
        case OpType::all_reduce:
        case OpType::reduce:
        case OpType::barrier:
        case OpType::send:
        case OpType::recv:
          return std::nullopt;
      }
    }
  }
  return std::nullopt;
}

// Then nothing has to be compared part by part.
bool all_even_and_alike(std::span<const Notice> all) {
  return std::all_of(all.begin(), all.end(), [&](const Notice& notice) {
    const Notice& first = all.front();
    const bool rooted = notice.call.op == OpType::gather || notice.call.op == OpType::scatter;
    const bool parts = notice.in_each == first.in_each && notice.out_each == first.out_each;
    const std::uint64_t each =
        notice.call.op == OpType::all_to_all ? notice.in_each : notice.call.count;
    const bool fits = (notice.in_each == 0 || notice.in_each == each) &&
                      (notice.out_each == 0 || notice.out_each == each);
    return notice.ins.empty() && notice.outs.empty() && !rooted && parts && fits &&
           notice.call.count == first.call.count && each != 0;
  });
}

}  // namespace

Notice Notice::of(const Call& from, int rank) {
  Notice notice;
  notice.rank = rank;
  notice.call.op = from.op;
  notice.call.reduce = from.reduce;
  notice.call.dtype = from.dtype;
  notice.call.root = from.root;
  notice.call.layout = from.layout;
  notice.call.count = from.count;
  notice.call.sequence = from.sequence;
  sizes_of(from.ins, notice.in_each, notice.ins);
  sizes_of(from.outs, notice.out_each, notice.outs);
  return notice;
}

std::uint64_t Notice::in_of(int peer) const {
  return ins.empty() ? in_each : ins[static_cast<std::size_t>(peer)];
}

std::uint64_t Notice::out_of(int peer) const {
  return outs.empty() ? out_each : outs[static_cast<std::size_t>(peer)];
}

std::uint64_t Notice::total_in(int size) const {
  switch (call.op) {
    case OpType::broadcast:
      return rank == call.root ? call.count : 0;
    case OpType::all_reduce:
    case OpType::reduce:
    case OpType::all_gather:
    case OpType::gather:
      return call.count;
    case OpType::scatter:
      return rank == call.root ? sum(ins, in_each, size) : 0;
    case OpType::reduce_scatter:
    case OpType::all_to_all:
      return sum(ins, in_each, size);
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return 0;
  }
  return 0;
}

std::uint64_t Notice::total_out(int size) const {
  switch (call.op) {
    case OpType::broadcast:
      return rank == call.root ? 0 : call.count;
    case OpType::reduce:
      return rank == call.root ? call.count : 0;
    case OpType::all_reduce:
    case OpType::scatter:
    case OpType::reduce_scatter:
      return call.count;
    case OpType::gather:
      return rank == call.root ? sum(outs, out_each, size) : 0;
    case OpType::all_gather:
    case OpType::all_to_all:
      return sum(outs, out_each, size);
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return 0;
  }
  return 0;
}

// ---- as it travels -----------------------------------------------------------------------------

void Notice::write(std::vector<std::byte>& message, std::span<const std::byte> with) const {
  Header header;
  header.op = static_cast<std::uint8_t>(call.op);
  header.reduce = static_cast<std::uint8_t>(call.reduce);
  header.dtype = static_cast<std::uint8_t>(call.dtype);
  if (!ins.empty()) header.flags |= kUnevenIns;
  if (!outs.empty()) header.flags |= kUnevenOuts;
  if (has_data) header.flags |= kData;
  header.sequence = call.sequence;
  header.count = call.count;
  header.in_each = in_each;
  header.out_each = out_each;
  header.root = call.root;
  header.rank = rank;
  header.layout = call.layout;
  header.data_bytes = with.size();
  message.resize(sizeof header + (ins.size() + outs.size()) * 8 + with.size());
  std::byte* at = message.data();
  const auto put = [&](const void* from, std::size_t bytes) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    at += bytes;
  };
  put(&header, sizeof header);
  put(ins.data(), ins.size() * 8);
  put(outs.data(), outs.size() * 8);
  put(with.data(), with.size());
}

std::size_t Notice::max_bytes(int size, std::size_t max_data) {
  return sizeof(Header) + std::size_t{16} * static_cast<std::size_t>(size) + max_data;
}

std::optional<Notice> Notice::read(std::span<const std::byte> message, int size) {
  Header header;
  if (message.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, message.data(), sizeof header);
  const auto p = static_cast<std::size_t>(size);
  const bool known = header.magic == kMagic && header.op <= static_cast<int>(OpType::barrier) &&
                     header.reduce <= static_cast<int>(ReduceOp::premul_sum) &&
                     header.dtype < kDTypes && header.root >= 0 && header.root < size &&
                     header.rank >= 0 && header.rank < size;
  if (!known) return std::nullopt;
  Notice notice;
  notice.rank = header.rank;
  notice.call.op = static_cast<OpType>(header.op);
  notice.call.reduce = static_cast<ReduceOp>(header.reduce);
  notice.call.dtype = static_cast<DType>(header.dtype);
  notice.call.root = header.root;
  notice.call.layout = header.layout;
  notice.call.count = header.count;
  notice.call.sequence = header.sequence;
  notice.in_each = header.in_each;
  notice.out_each = header.out_each;
  notice.has_data = (header.flags & kData) != 0;
  message = message.subspan(sizeof header);
  const auto take = [&](std::vector<std::uint64_t>& numbers) {
    if (message.size() < p * 8) return false;
    numbers.resize(p);
    std::memcpy(numbers.data(), message.data(), p * 8);
    message = message.subspan(p * 8);
    return true;
  };
  if ((header.flags & kUnevenIns) != 0 && !take(notice.ins)) return std::nullopt;
  if ((header.flags & kUnevenOuts) != 0 && !take(notice.outs)) return std::nullopt;
  if (message.size() < header.data_bytes) return std::nullopt;
  notice.data = message.first(header.data_bytes);
  return notice;
}

// ---- comparing ---------------------------------------------------------------------------------

std::optional<Difference> find_difference(std::span<const Notice> notices) {
  const Notice& first = notices.front();
  for (const Notice& other : notices.subspan(1)) {
    const std::string what = differing(first.call, other.call);
    if (!what.empty())
      return Difference{first.rank, other.rank,
                        words(first) + ", " + words(other) + ": they differ in " + what};
  }
  if (all_even_and_alike(notices)) return std::nullopt;
  return unlike_parts(notices);
}

}  // namespace distrun
