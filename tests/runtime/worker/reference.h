// What every collective has to give, worked out the slow way: as complex numbers, element by
// element, from numbers small enough that every type holds all sums and products exactly.  Each
// rank's Call, with memory of its own, and what must be in it afterwards.
#pragma once

#include "runtime/worker/call.h"
#include "runtime/worker/reduction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <complex>
#include <cstring>
#include <string>
#include <vector>

namespace distrun::test {

using Number = std::complex<double>;

inline constexpr std::array kAllDTypes{
    DType::int8,     DType::int16,   DType::int32,   DType::int64,     DType::uint8,
    DType::uint16,   DType::uint32,  DType::uint64,  DType::boolean,   DType::float16,
    DType::bfloat16, DType::float32, DType::float64, DType::complex64, DType::complex128};
inline constexpr std::array kAllReduceOps{ReduceOp::sum, ReduceOp::avg,  ReduceOp::product,
                                          ReduceOp::min, ReduceOp::max,  ReduceOp::band,
                                          ReduceOp::bor, ReduceOp::bxor, ReduceOp::premul_sum};
inline constexpr std::array kAllOps{OpType::broadcast,      OpType::all_reduce, OpType::reduce,
                                    OpType::all_gather,     OpType::gather,     OpType::scatter,
                                    OpType::reduce_scatter, OpType::all_to_all, OpType::barrier};

template <class F>
auto with_element(DType dtype, F f) {
  switch (dtype) {
    case DType::int8:
      return f(std::int8_t{});
    case DType::int16:
      return f(std::int16_t{});
    case DType::int32:
      return f(std::int32_t{});
    case DType::int64:
      return f(std::int64_t{});
    case DType::uint8:
      return f(std::uint8_t{});
    case DType::uint16:
      return f(std::uint16_t{});
    case DType::uint32:
      return f(std::uint32_t{});
    case DType::uint64:
      return f(std::uint64_t{});
    case DType::boolean:
      return f(bool{});
    case DType::float16:
      return f(float16{});
    case DType::bfloat16:
      return f(bfloat16{});
    case DType::float32:
      return f(float{});
    case DType::float64:
      return f(double{});
    case DType::complex64:
      return f(std::complex<float>{});
    case DType::complex128:
      return f(std::complex<double>{});
  }
  return f(char{});
}

inline void put(DType dtype, std::byte* at, Number value) {
  with_element(dtype, [&]<class T>(T) {
    T element{};
    if constexpr (std::is_same_v<T, std::complex<float>>)
      element = T(static_cast<float>(value.real()), static_cast<float>(value.imag()));
    else if constexpr (std::is_same_v<T, std::complex<double>>)
      element = value;
    else if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>)
      element = T(static_cast<float>(value.real()));
    else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
      element = static_cast<T>(static_cast<std::int64_t>(value.real()));  // wraps
    else
      element = static_cast<T>(value.real());
    std::memcpy(at, &element, sizeof element);
  });
}

// In `index` they repeat after four.
inline Number value_of(DType dtype, int rank, std::size_t index) {
  const auto n = static_cast<double>((index * 5 + static_cast<std::size_t>(rank) * 3) % 4);
  if (dtype == DType::boolean) return n < 1 ? 0 : 1;
  if (dtype == DType::complex64 || dtype == DType::complex128) return {n, 1};
  return n + 1;
}

// `count` numbers that repeat after four, of `number_of` the first ones.
template <class F>
void put_all(DType dtype, std::byte* at, std::size_t count, F number_of) {
  const std::size_t width = size_of(dtype);
  std::size_t done = std::min<std::size_t>(count, 4);
  for (std::size_t i = 0; i < done; ++i) put(dtype, at + i * width, number_of(i));
  for (; done < count; done *= 2)
    std::memcpy(at + done * width, at, std::min(done, count - done) * width);
}

// Of premul_sum: each rank's own, and exact in every type.
inline double factor_of(std::size_t rank) {
  return static_cast<double>(rank % 3 + 1);
}

// `values` in the order of ranks.
inline Number reduced(DType dtype, ReduceOp op, const std::vector<Number>& values) {
  Number result = values.front();
  if (op == ReduceOp::premul_sum) result *= factor_of(0);
  const auto bits = [](Number n) { return static_cast<unsigned>(n.real()); };
  for (std::size_t i = 1; i < values.size(); ++i) {
    const Number more = values[i];
    switch (op) {
      case ReduceOp::sum:
      case ReduceOp::avg:
        result += more;
        break;
      case ReduceOp::premul_sum:
        result += more * factor_of(i);
        break;
      case ReduceOp::product:
        result *= more;
        break;
      case ReduceOp::min:
        if (more.real() < result.real()) result = more;
        break;
      case ReduceOp::max:
        if (more.real() > result.real()) result = more;
        break;
      case ReduceOp::band:
        result = bits(result) & bits(more);
        break;
      case ReduceOp::bor:
        result = bits(result) | bits(more);
        break;
      case ReduceOp::bxor:
        result = bits(result) ^ bits(more);
        break;
    }
  }
  if (op == ReduceOp::avg) result /= static_cast<double>(values.size());
  if (dtype == DType::boolean) return result == Number(0) ? 0 : 1;
  return result;
}

// One rank's side of a call.
struct Side {
  Call call;
  std::vector<std::byte> in;        // what `call` reads, if it is not in place
  std::vector<std::byte> out;       // what it writes
  std::vector<std::byte> expected;  // of `out`
};

struct Trial {
  OpType op = OpType::all_reduce;
  DType dtype = DType::float32;
  ReduceOp reduce = ReduceOp::sum;
  int root = 0;
  std::size_t count = 1;
  bool uneven = false;  // part k of the lists has k elements more
  int size = 2;

  std::string name() const {
    return std::string(to_string(op)) + " " + std::string(to_string(dtype)) + " x " +
           std::to_string(count) + (uneven ? " uneven" : "") + " " +
           std::string(to_string(reduce)) + ", root " + std::to_string(root) + " of " +
           std::to_string(size);
  }
};

inline bool reduces(OpType op) {
  return op == OpType::all_reduce || op == OpType::reduce || op == OpType::reduce_scatter;
}

// In `side`, whose memory the call points into: it must stay where it is.
inline void set_up(Side& side, const Trial& trial, int rank) {
  const std::size_t width = size_of(trial.dtype);
  const auto p = static_cast<std::size_t>(trial.size);
  const auto me = static_cast<std::size_t>(rank);
  const bool at_root = rank == trial.root;
  const auto part = [&](std::size_t of) { return trial.count + (trial.uneven ? of : 0); };
  const auto part_at = [&](std::size_t of) {
    std::size_t before = 0;
    for (std::size_t i = 0; i < of; ++i) before += part(i);
    return before;
  };
  const std::size_t whole = part_at(p);
  Call& call = side.call;
  call.op = trial.op;
  call.dtype = trial.dtype;
  call.reduce = reduces(trial.op) ? trial.reduce : ReduceOp::sum;
  call.factor = factor_of(me);
  call.root = trial.root;

  const auto fill = [&](std::vector<std::byte>& memory, std::size_t elements, int of) {
    memory.assign(elements * width + 1, std::byte{0x5A});  // one more: never null
    put_all(trial.dtype, memory.data(), elements,
            [&](std::size_t i) { return value_of(trial.dtype, of, i); });
  };
  const auto blank = [&](std::size_t elements) {
    side.out.assign(elements * width + 1, std::byte{0x5A});
  };
  const auto expect = [&](std::size_t from, std::size_t elements, auto number_of) {
    put_all(trial.dtype, side.expected.data() + from * width, elements, number_of);
  };
  const auto all_of = [&](std::size_t index) {
    std::vector<Number> values;
    for (int from = 0; from < trial.size; ++from)
      values.push_back(value_of(trial.dtype, from, index));
    return reduced(trial.dtype, trial.reduce, values);
  };
  const auto set_ins = [&] {
    for (std::size_t i = 0; i < p; ++i)
      call.ins.push_back({side.in.data() + part_at(i) * width, part(i)});
  };
  const auto set_outs = [&](bool own_sizes) {
    for (std::size_t i = 0; i < p; ++i)
      call.outs.push_back(own_sizes ? Part{side.out.data() + part_at(i) * width, part(i)}
                                    : Part{side.out.data() + i * part(me) * width, part(me)});
  };
  switch (trial.op) {
    case OpType::broadcast:
    case OpType::all_reduce:
    case OpType::reduce:
      fill(side.out, trial.count, rank);
      side.expected = side.out;
      call.count = trial.count;
      call.in = call.out = side.out.data();
      if (trial.op == OpType::reduce && !at_root) return;
      expect(0, trial.count, [&](std::size_t i) {
        return trial.op == OpType::broadcast ? value_of(trial.dtype, trial.root, i) : all_of(i);
      });
      return;
    case OpType::all_gather:
    case OpType::gather:
      call.count = part(me);
      fill(side.in, call.count, rank);
      call.in = side.in.data();
      blank(whole);
      side.expected = side.out;
      if (trial.op == OpType::gather && !at_root) return;
      set_outs(true);
      for (std::size_t from = 0; from < p; ++from)
        expect(part_at(from), part(from),
               [&](std::size_t i) { return value_of(trial.dtype, static_cast<int>(from), i); });
      return;
    case OpType::scatter:
    case OpType::reduce_scatter:
      call.count = part(me);
      fill(side.in, whole, rank);
      blank(call.count);
      side.expected = side.out;
      call.out = side.out.data();
      if (trial.op == OpType::reduce_scatter || at_root) set_ins();
      expect(0, call.count, [&](std::size_t i) {
        return trial.op == OpType::scatter ? value_of(trial.dtype, trial.root, part_at(me) + i)
                                           : all_of(part_at(me) + i);
      });
      return;
    case OpType::all_to_all:
      fill(side.in, whole, rank);
      blank(part(me) * p);
      side.expected = side.out;
      set_ins();
      set_outs(false);
      for (std::size_t from = 0; from < p; ++from)
        expect(from * part(me), part(me), [&](std::size_t i) {
          return value_of(trial.dtype, static_cast<int>(from), part_at(me) + i);
        });
      return;
    case OpType::barrier:
    case OpType::send:
    case OpType::recv:
      return;
  }
}

// Bit for bit, but for zeros of complex products, whose sign depends on the order.
template <class T>
bool same_numbers(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
  std::vector<T> of_a(a.size() / sizeof(T)), of_b(b.size() / sizeof(T));
  if (of_a.empty() || of_b.empty()) return of_a == of_b;
  std::memcpy(of_a.data(), a.data(), of_a.size() * sizeof(T));
  std::memcpy(of_b.data(), b.data(), of_b.size() * sizeof(T));
  return of_a == of_b;
}

inline void check(const Side& side, const Trial& trial, int rank) {
  bool same = side.out == side.expected;
  if (trial.dtype == DType::complex64) same = same_numbers<float>(side.out, side.expected);
  if (trial.dtype == DType::complex128) same = same_numbers<double>(side.out, side.expected);
  EXPECT_TRUE(same) << trial.name() << ", rank " << rank;
}

// All trials of one operation: every type, with every reduction that it has; counts on both sides
// of what goes with the agreement, and that no number of ranks divides.
inline std::vector<Trial> trials_of(OpType op, int size,
                                    std::initializer_list<std::size_t> counts) {
  std::vector<Trial> trials;
  const bool lists = op != OpType::broadcast && op != OpType::all_reduce && op != OpType::reduce &&
                     op != OpType::barrier;
  for (const DType dtype : kAllDTypes)
    for (const ReduceOp reduce : kAllReduceOps) {
      if (!reduces(op) && reduce != ReduceOp::sum) continue;
      if (!why_no_reduction(dtype, reduce).empty()) continue;
      for (const std::size_t count : counts)
        for (const bool uneven : {false, true}) {
          if (uneven && !lists) continue;
          Trial trial{op, dtype, reduce, 0, count, uneven, size};
          trial.root = static_cast<int>(trials.size()) % size;
          if (op == OpType::all_reduce || op == OpType::all_gather ||
              op == OpType::reduce_scatter || op == OpType::all_to_all || op == OpType::barrier)
            trial.root = 0;
          trials.push_back(trial);
        }
    }
  return trials;
}

}  // namespace distrun::test
