#include "tests/runtime/nccl/elements.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace distrun::nccl::testing {
namespace {

template <class T>
double get(const void* data, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(data) + index * sizeof(T), sizeof(T));
  return static_cast<double>(value);
}
template <class T>
void put(void* data, std::size_t index, T value) {
  std::memcpy(static_cast<unsigned char*>(data) + index * sizeof(T), &value, sizeof(T));
}

float from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31;
  const int mantissa = bits & 1023;
  float value = 0;
  if (exponent == 0) {
    value = std::ldexp(static_cast<float>(mantissa), -24);
  } else if (exponent == 31) {
    value = mantissa ? NAN : INFINITY;
  } else {
    value = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return bits & 0x8000 ? -value : value;
}
// Good for what tests use: normal numbers.
std::uint16_t to_half(float value) {
  if (value == 0) return 0;
  int exponent = 0;
  const float fraction = std::frexp(std::fabs(value), &exponent);
  const int mantissa = static_cast<int>(std::nearbyint(fraction * 2048.0F));
  const int bits = ((exponent + 14) << 10) + (mantissa - 1024);
  return static_cast<std::uint16_t>(bits | (value < 0 ? 0x8000 : 0));
}

}  // namespace

double load(const void* data, std::size_t index, NcclType type) {
  switch (type) {
    case NcclType::int8:
      return get<std::int8_t>(data, index);
    case NcclType::uint8:
      return get<std::uint8_t>(data, index);
    case NcclType::int32:
      return get<std::int32_t>(data, index);
    case NcclType::uint32:
      return get<std::uint32_t>(data, index);
    case NcclType::int64:
      return get<std::int64_t>(data, index);
    case NcclType::uint64:
      return get<std::uint64_t>(data, index);
    case NcclType::float32:
      return get<float>(data, index);
    case NcclType::float64:
      return get<double>(data, index);
    case NcclType::float16:
    case NcclType::bfloat16: {
      std::uint16_t bits = 0;
      std::memcpy(&bits, static_cast<const unsigned char*>(data) + index * 2, 2);
      if (type == NcclType::float16) return from_half(bits);
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }
    case NcclType::float8e4m3:
    case NcclType::float8e5m2:
      break;
  }
  std::abort();  // no test reduces them
}

void store(void* data, std::size_t index, NcclType type, double value) {
  switch (type) {
    case NcclType::int8:
      return put(data, index, static_cast<std::int8_t>(value));
    case NcclType::uint8:
      return put(data, index, static_cast<std::uint8_t>(value));
    case NcclType::int32:
      return put(data, index, static_cast<std::int32_t>(value));
    case NcclType::uint32:
      return put(data, index, static_cast<std::uint32_t>(value));
    case NcclType::int64:
      return put(data, index, static_cast<std::int64_t>(value));
    case NcclType::uint64:
      return put(data, index, static_cast<std::uint64_t>(value));
    case NcclType::float32:
      return put(data, index, static_cast<float>(value));
    case NcclType::float64:
      return put(data, index, value);
    case NcclType::float16:
      return put(data, index, to_half(static_cast<float>(value)));
    case NcclType::bfloat16:
      return put(data, index,
                 static_cast<std::uint16_t>(
                     std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16));
    case NcclType::float8e4m3:
    case NcclType::float8e5m2:
      break;
  }
  std::abort();
}

std::vector<std::vector<unsigned char>> results_of(const std::string& call,
                                                   const std::vector<Contribution>& ranks,
                                                   int root) {
  const std::size_t n = ranks.size();
  const std::size_t count = ranks.front().count;
  const NcclType type = ranks.front().type;
  const std::size_t bytes = count * size_of(type);
  std::vector<std::vector<unsigned char>> results(n);
  const auto bytes_of = [&](std::size_t rank) {
    const auto* in = static_cast<const unsigned char*>(ranks[rank].in);
    return std::vector<unsigned char>(in, in + bytes);
  };
  const NcclOp op = ranks.front().reduction.op;
  const auto reduce = [&](std::size_t from) {
    std::vector<unsigned char> out(bytes);
    for (std::size_t i = 0; i < count; ++i) {
      double value = 0;
      for (std::size_t rank = 0; rank < n; ++rank) {
        double x = load(ranks[rank].in, from + i, type);
        const Reduction& reduction = ranks[rank].reduction;
        if (reduction.premul) {
          x *= reduction.factor_at ? load(reduction.factor_at, 0, type) : reduction.factor;
        }
        if (rank == 0) {
          value = x;
          continue;
        }
        switch (op) {
          case NcclOp::sum:
          case NcclOp::avg:
            value += x;
            break;
          case NcclOp::product:
            value *= x;
            break;
          case NcclOp::min:
            value = std::min(value, x);
            break;
          case NcclOp::max:
            value = std::max(value, x);
            break;
        }
      }
      if (op == NcclOp::avg) value /= static_cast<double>(n);
      store(out.data(), i, type, value);
    }
    return out;
  };
  if (call == "broadcast") {
    for (auto& result : results) result = bytes_of(static_cast<std::size_t>(root));
  } else if (call == "all_reduce") {
    for (auto& result : results) result = results[0].empty() ? reduce(0) : results[0];
  } else if (call == "reduce") {
    results[static_cast<std::size_t>(root)] = reduce(0);
  } else if (call == "reduce_scatter") {
    for (std::size_t rank = 0; rank < n; ++rank) results[rank] = reduce(rank * count);
  } else if (call == "all_gather") {
    std::vector<unsigned char> all;
    for (std::size_t rank = 0; rank < n; ++rank) {
      const auto part = bytes_of(rank);
      all.insert(all.end(), part.begin(), part.end());
    }
    for (auto& result : results) result = all;
  } else {
    std::abort();
  }
  return results;
}

}  // namespace distrun::nccl::testing
