#include "runtime/worker/reduction.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <type_traits>

namespace distrun {
namespace {

// What sums of T are kept in while they are added up.
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>, float, T>;

template <class T>
inline constexpr bool kComplex =
    std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;

template <class T>
inline constexpr bool kInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Signed overflow is undefined; the unsigned twin wraps.  16-bit numbers are multiplied as int,
// which can overflow, too.
template <class T, class F>
T wrapping(T a, T b, F function) {
  using U = std::conditional_t<sizeof(T) < sizeof(unsigned), unsigned, std::make_unsigned_t<T>>;
  return static_cast<T>(function(static_cast<U>(a), static_cast<U>(b)));
}

// ---- one operation on two values ---------------------------------------------------------------

struct Sum {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a || b;
    else if constexpr (kInteger<T>)
      return wrapping(a, b, [](auto x, auto y) { return x + y; });
    else
      return a + b;
  }
};

struct Product {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_same_v<T, bool>)
      return a && b;
    else if constexpr (kInteger<T>)
      return wrapping(a, b, [](auto x, auto y) { return x * y; });
    else
      return a * b;
  }
};

struct Min {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return a < b || a != a ? a : b;
    else
      return a < b ? a : b;
  }
};

struct Max {
  template <class T>
  T operator()(T a, T b) const {
    if constexpr (std::is_floating_point_v<T>)
      return a > b || a != a ? a : b;
    else
      return a > b ? a : b;
  }
};

struct BitAnd {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a & b);
  }
};
struct BitOr {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a | b);
  }
};
struct BitXor {
  template <class T>
  T operator()(T a, T b) const {
    return static_cast<T>(a ^ b);
  }
};

// ---- the right types ---------------------------------------------------------------------------

template <class F>
void with_type(DType dtype, F function) {
  switch (dtype) {
    case DType::int8:
      return function(std::int8_t{});
    case DType::int16:
      return function(std::int16_t{});
    case DType::int32:
      return function(std::int32_t{});
    case DType::int64:
      return function(std::int64_t{});
    case DType::uint8:
      return function(std::uint8_t{});
    case DType::uint16:
      return function(std::uint16_t{});
    case DType::uint32:
      return function(std::uint32_t{});
    case DType::uint64:
      return function(std::uint64_t{});
    case DType::boolean:
      return function(bool{});
    case DType::float16:
      return function(float16{});
    case DType::bfloat16:
      return function(bfloat16{});
    case DType::float32:
      return function(float{});
    case DType::float64:
      return function(double{});
    case DType::complex64:
      return function(std::complex<float>{});
    case DType::complex128:
      return function(std::complex<double>{});
  }
}

template <class T, class F>
void with_operation(ReduceOp op, F function) {
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return function(Sum{});
    case ReduceOp::product:
      return function(Product{});
    // NOLINTBEGIN(bugprone-branch-clone): what a type does not have is nothing
    case ReduceOp::min:
      if constexpr (!kComplex<T>) return function(Min{});
      return;
    case ReduceOp::max:
      if constexpr (!kComplex<T>) return function(Max{});
      return;
    case ReduceOp::band:
      if constexpr (std::is_integral_v<T>) return function(BitAnd{});
      return;
    case ReduceOp::bor:
      if constexpr (std::is_integral_v<T>) return function(BitOr{});
      return;
    case ReduceOp::bxor:
      if constexpr (std::is_integral_v<T>) return function(BitXor{});
      return;
      // NOLINTEND(bugprone-branch-clone)
  }
}

template <class T>
void scale(T* to, const T* from, double factor, std::size_t count) {
  if constexpr (kComplex<T>) {
    const auto by = static_cast<typename T::value_type>(factor);
    for (std::size_t i = 0; i < count; ++i) to[i] = from[i] * by;
  } else if constexpr (!std::is_integral_v<T>) {
    const auto by = static_cast<Wide<T>>(factor);
    for (std::size_t i = 0; i < count; ++i)
      to[i] = static_cast<T>(static_cast<Wide<T>>(from[i]) * by);
  }
}

template <class T>
void divide(T* values, std::size_t count, int ranks) {
  if constexpr (kComplex<T>) {
    const auto by = static_cast<typename T::value_type>(ranks);
    for (std::size_t i = 0; i < count; ++i) values[i] /= by;
  } else if constexpr (!std::is_integral_v<T>) {
    const auto by = static_cast<Wide<T>>(ranks);
    for (std::size_t i = 0; i < count; ++i)
      values[i] = static_cast<T>(static_cast<Wide<T>>(values[i]) / by);
  }
}

bool is_integer(DType dtype) {
  switch (dtype) {
    case DType::int8:
    case DType::int16:
    case DType::int32:
    case DType::int64:
    case DType::uint8:
    case DType::uint16:
    case DType::uint32:
    case DType::uint64:
      return true;
    case DType::boolean:
    case DType::float16:
    case DType::bfloat16:
    case DType::float32:
    case DType::float64:
    case DType::complex64:
    case DType::complex128:
      return false;
  }
  return false;
}

}  // namespace

std::string why_no_reduction(DType dtype, ReduceOp op) {
  const auto since = [&](const char* why) {
    return std::string(to_string(op)) + " of " + std::string(to_string(dtype)) + why;
  };
  const bool complex = dtype == DType::complex64 || dtype == DType::complex128;
  const bool whole = is_integer(dtype) || dtype == DType::boolean;
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::product:
      return "";
    case ReduceOp::avg:
    case ReduceOp::premul_sum:
      return whole ? since(": it needs floating point or complex numbers") : "";
    case ReduceOp::min:
    case ReduceOp::max:
      return complex ? since(": complex numbers have no order") : "";
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      return whole ? "" : since(": it needs integers or bool");
  }
  return since("");
}

void prepare(DType dtype, ReduceOp op, double factor, void* to, const void* from,
             std::size_t count) {
  if (op == ReduceOp::premul_sum)
    return with_type(dtype, [&]<class T>(T) {
      scale(static_cast<T*>(to), static_cast<const T*>(from), factor, count);
    });
  if (to != from && count > 0) std::memmove(to, from, count * size_of(dtype));
}

void combine(DType dtype, ReduceOp op, void* accumulator, const void* more, std::size_t count) {
  with_type(dtype, [&]<class T>(T) {
    auto* const to = static_cast<T*>(accumulator);
    const auto* const from = static_cast<const T*>(more);
    using W = Wide<T>;
    with_operation<W>(op, [&](auto function) {
      for (std::size_t i = 0; i < count; ++i)
        to[i] = static_cast<T>(function(static_cast<W>(to[i]), static_cast<W>(from[i])));
    });
  });
}

void combine_all(DType dtype, ReduceOp op, void* to, std::span<const void* const> inputs,
                 std::size_t count) {
  with_type(dtype, [&]<class T>(T) {
    using W = Wide<T>;
    auto* const result = static_cast<T*>(to);
    const auto input = [&](std::size_t k) { return static_cast<const T*>(inputs[k]); };
    with_operation<W>(op, [&](auto function) {
      // The common case by itself: a loop that the compiler turns into vector instructions.
      if (inputs.size() == 2) {
        const T* const a = input(0);
        const T* const b = input(1);
        for (std::size_t i = 0; i < count; ++i)
          result[i] = static_cast<T>(function(static_cast<W>(a[i]), static_cast<W>(b[i])));
        return;
      }
      // In blocks, so that what is added up stays in the first-level cache.
      constexpr std::size_t kBlock = 512;
      W sums[kBlock];
      for (std::size_t at = 0; at < count; at += kBlock) {
        const std::size_t n = std::min(kBlock, count - at);
        for (std::size_t i = 0; i < n; ++i) sums[i] = static_cast<W>(input(0)[at + i]);
        for (std::size_t k = 1; k < inputs.size(); ++k) {
          const T* const more = input(k) + at;
          for (std::size_t i = 0; i < n; ++i) sums[i] = function(sums[i], static_cast<W>(more[i]));
        }
        for (std::size_t i = 0; i < n; ++i) result[at + i] = static_cast<T>(sums[i]);
      }
    });
  });
}

void finish(DType dtype, ReduceOp op, void* accumulator, std::size_t count, int ranks) {
  if (op != ReduceOp::avg) return;
  with_type(dtype, [&]<class T>(T) { divide(static_cast<T*>(accumulator), count, ranks); });
}

}  // namespace distrun
