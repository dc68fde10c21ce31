// The numbers that NCCL and the callers of this backend use, as types.  Where the real headers are,
// cuda_api.cc checks that NCCL's are the same; plugin.cc does so for distrun/backend_abi.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace distrun::nccl {

enum class NcclResult : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class NcclType : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  uint32 = 3,
  int64 = 4,
  uint64 = 5,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
  float8e4m3 = 10,
  float8e5m2 = 11,
};
std::size_t size_of(NcclType type);

// Built-in ones; the handles of premul_sum are numbers above.
enum class NcclOp : int { sum = 0, product = 1, max = 2, min = 3, avg = 4 };

enum class OpKind : std::int32_t {
  broadcast = 0,
  all_reduce = 1,
  reduce = 2,
  all_gather = 3,
  gather = 4,
  scatter = 5,
  reduce_scatter = 6,
  all_to_all = 7,
  send = 8,
  recv = 9,
  barrier = 10,
};
inline constexpr std::int32_t kOpKinds = 11;
std::string_view to_string(OpKind kind);

enum class ReduceOp : std::int32_t {
  sum = 0,
  avg = 1,
  product = 2,
  min = 3,
  max = 4,
  band = 5,
  bor = 6,
  bxor = 7,
  premul_sum = 8,
};
inline constexpr std::int32_t kReduceOps = 9;
std::string_view to_string(ReduceOp op);

// An element type by DLPack's codes.
struct DType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  bool operator==(const DType&) const = default;
};
// "float32", "bfloat16", "float8_e4m3fn"; unknown ones as "dtype(code 9, 24 bits)".
std::string to_string(DType dtype);

}  // namespace distrun::nccl
