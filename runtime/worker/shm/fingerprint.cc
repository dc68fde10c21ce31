#include "runtime/worker/shm/fingerprint.h"

#include <algorithm>

namespace distrun::shm {
namespace {

bool has_root(OpType op) {
  return op == OpType::broadcast || op == OpType::reduce || op == OpType::gather ||
         op == OpType::scatter;
}

// Of one kind of parts: all alike, or a hash.
template <class P>
void take_parts(const std::vector<P>& parts, Fingerprint& print) {
  if (parts.empty()) return;
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a, by words
  bool even = true;
  for (const P& part : parts) {
    hash = (hash ^ part.count) * 1099511628211U;
    even = even && part.count == parts.front().count;
    print.largest = std::max(print.largest, part.count);
  }
  const bool first = print.kind == Parts::none;
  if (even && (first || (print.kind == Parts::even && print.parts == parts.front().count))) {
    print.kind = Parts::even;
    print.parts = parts.front().count;
  } else {
    print.kind = Parts::uneven;
    print.parts = hash;
  }
}

std::string describe(const Fingerprint& print) {
  Call call;
  call.op = static_cast<OpType>(print.op);
  call.reduce = static_cast<ReduceOp>(print.reduce);
  call.dtype = static_cast<DType>(print.dtype);
  call.sequence = print.sequence;
  call.count = print.count;
  if (has_root(call.op)) call.root = print.root;
  return to_string(call);
}

Difference difference(const Said& a, const Said& b, const std::string& in) {
  return {a.rank, b.rank,
          "rank " + std::to_string(a.rank) + " called " + describe(a.call) + ", rank " +
              std::to_string(b.rank) + " called " + describe(b.call) + ": they differ in " + in};
}

// In what all ranks must agree on; empty: nothing.
std::string fields(const Fingerprint& a, const Fingerprint& b) {
  std::string what;
  const auto name = [&](bool differs, const char* text) {
    if (differs) what += (what.empty() ? "" : ", ") + std::string(text);
  };
  const auto op = static_cast<OpType>(a.op);
  const bool same_op = a.op == b.op;
  const bool same_count =
      op == OpType::broadcast || op == OpType::all_reduce || op == OpType::reduce;
  const bool same_parts = op == OpType::all_gather || op == OpType::reduce_scatter;
  name(!same_op, "the operation");
  name(a.sequence != b.sequence, "its number");
  name(a.dtype != b.dtype, "the element type");
  name(same_op && same_count && a.count != b.count, "the count");
  name(same_op && same_parts && (a.kind != b.kind || a.parts != b.parts), "the sizes of the parts");
  name(same_op && a.reduce != b.reduce, "the reduce operation");
  const bool rooted = has_root(static_cast<OpType>(a.op));
  name(same_op && a.root != b.root, rooted ? "the root" : "the sizes of the tensors");
  return what;
}

std::uint64_t gives(const Said& from, int to) {
  return from.table[static_cast<std::size_t>(to)];
}
std::uint64_t takes(const Said& to, int from, int ranks) {
  return to.table[static_cast<std::size_t>(ranks) + static_cast<std::size_t>(from)];
}

std::string sizes(std::uint64_t given, std::uint64_t taken, int from, int to) {
  return "the size of the part of rank " + std::to_string(from) + " for rank " +
         std::to_string(to) + ": " + std::to_string(given) + " elements are given, " +
         std::to_string(taken) + " are expected";
}

std::optional<Difference> compare_pair(const Said& a, const Said& b, int ranks) {
  const auto op = static_cast<OpType>(a.call.op);
  const auto check = [&](std::uint64_t given, std::uint64_t taken, const Said& from,
                         const Said& to) -> std::optional<Difference> {
    if (given == taken) return std::nullopt;
    return difference(a, b, sizes(given, taken, from.rank, to.rank));
  };
  if (op == OpType::all_to_all) {
    if (auto found = check(gives(a, b.rank), takes(b, a.rank, ranks), a, b)) return found;
    return check(gives(b, a.rank), takes(a, b.rank, ranks), b, a);
  }
  const Said& root = a.rank == a.call.root ? a : b;
  const Said& leaf = a.rank == a.call.root ? b : a;
  if (root.rank != root.call.root) return std::nullopt;
  if (op == OpType::gather)
    return check(leaf.call.count, takes(root, leaf.rank, ranks), leaf, root);
  if (op == OpType::scatter) return check(gives(root, leaf.rank), leaf.call.count, root, leaf);
  return std::nullopt;
}

}  // namespace

Fingerprint fingerprint_of(const Call& call) {
  Fingerprint print;
  print.sequence = call.sequence;
  print.op = static_cast<std::uint8_t>(call.op);
  if (call.op == OpType::barrier) return print;
  print.count = call.count;
  print.largest = call.count;
  print.dtype = static_cast<std::uint8_t>(call.dtype);
  print.reduce = static_cast<std::uint8_t>(call.reduce);
  print.root = has_root(call.op) ? call.root : call.layout;
  take_parts(call.ins, print);
  take_parts(call.outs, print);
  return print;
}

void write_table(const Call& call, std::span<std::uint64_t> table) {
  std::ranges::fill(table, 0);
  for (std::size_t i = 0; i < call.ins.size(); ++i) table[i] = call.ins[i].count;
  const auto second = table.subspan(table.size() / 2);
  for (std::size_t i = 0; i < call.outs.size(); ++i) second[i] = call.outs[i].count;
}

bool agreed(std::span<const Fingerprint* const> calls) {
  const Fingerprint first = *calls.front();
  const auto op = static_cast<OpType>(first.op);
  // Each pair of ranks has sizes of its own: compare() looks into them.
  if (op == OpType::all_to_all && first.kind != Parts::even) return false;
  if (op == OpType::gather || op == OpType::scatter) {
    if (first.root < 0 || static_cast<std::size_t>(first.root) >= calls.size()) return false;
    const Fingerprint root = *calls[static_cast<std::size_t>(first.root)];
    return root.kind == Parts::even && std::ranges::all_of(calls, [&](const auto* call) {
             return call->count == root.parts && fields(first, *call).empty();
           });
  }
  if (op == OpType::all_gather || op == OpType::reduce_scatter)
    return std::ranges::all_of(
        calls, [&](const auto* call) { return first == *call || fields(first, *call).empty(); });
  return std::ranges::all_of(calls, [&](const auto* call) { return first == *call; });
}

std::optional<Difference> compare(std::span<const Said> said, int ranks) {
  if (said.empty()) return std::nullopt;
  for (const Said& other : said.subspan(1)) {
    const std::string in = fields(said.front().call, other.call);
    if (!in.empty()) return difference(said.front(), other, in);
  }
  const auto op = static_cast<OpType>(said.front().call.op);
  if (op != OpType::gather && op != OpType::scatter && op != OpType::all_to_all)
    return std::nullopt;
  for (std::size_t i = 0; i < said.size(); ++i)
    for (std::size_t j = i + 1; j < said.size(); ++j)
      if (auto found = compare_pair(said[i], said[j], ranks)) return found;
  return std::nullopt;
}

}  // namespace distrun::shm
