#include "runtime/worker/reduction.h"

#include <algorithm>
#include <type_traits>

namespace distrun {
namespace {

// Signed overflow is undefined; the unsigned twin wraps.
template <class T>
T wrapping_sum(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

template <class T>
T wrapping_product(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  } else {
    return a * b;
  }
}

template <class T>
void combine_as(ReduceOp op, T* accumulator, const T* more, std::size_t count) {
  const auto each = [&](auto function) {
    for (std::size_t i = 0; i < count; ++i) accumulator[i] = function(accumulator[i], more[i]);
  };
  switch (op) {
    case ReduceOp::sum:
    case ReduceOp::avg:
      return each(wrapping_sum<T>);
    case ReduceOp::product:
      return each(wrapping_product<T>);
    case ReduceOp::min:
      return each([](T a, T b) { return std::min(a, b); });
    case ReduceOp::max:
      return each([](T a, T b) { return std::max(a, b); });
  }
}

template <class T>
void divide(T* values, std::size_t count, int ranks) {
  for (std::size_t i = 0; i < count; ++i) values[i] /= static_cast<T>(ranks);
}

}  // namespace

void combine(DType dtype, ReduceOp op, void* accumulator, const void* more, std::size_t count) {
  switch (dtype) {
    case DType::float32:
      return combine_as(op, static_cast<float*>(accumulator), static_cast<const float*>(more),
                        count);
    case DType::float64:
      return combine_as(op, static_cast<double*>(accumulator), static_cast<const double*>(more),
                        count);
    case DType::int32:
      return combine_as(op, static_cast<std::int32_t*>(accumulator),
                        static_cast<const std::int32_t*>(more), count);
    case DType::int64:
      return combine_as(op, static_cast<std::int64_t*>(accumulator),
                        static_cast<const std::int64_t*>(more), count);
  }
}

void finish(DType dtype, ReduceOp op, void* accumulator, std::size_t count, int ranks) {
  if (op != ReduceOp::avg) return;
  switch (dtype) {
    case DType::float32:
      return divide(static_cast<float*>(accumulator), count, ranks);
    case DType::float64:
      return divide(static_cast<double*>(accumulator), count, ranks);
    case DType::int32:
    case DType::int64:
      return;  // refused before anything was sent
  }
}

}  // namespace distrun
