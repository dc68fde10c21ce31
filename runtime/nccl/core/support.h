// What NCCL can do with which element type: the one table of it.
//
// NCCL has no int16, no complex and no bool, and no bit operations.  Data that is only moved goes
// as bytes, whatever it is.  For reductions bool goes as uint8 (sum is "any of them", so that 1+1
// stays 1), and complex as pairs of real numbers where that is the same: sum, avg, premul_sum.  All
// else is refused here, in words, before anything is sent.
#pragma once

#include "runtime/nccl/core/codes.h"

#include <cstdint>
#include <string>
#include <variant>

namespace distrun::nccl {

struct Native {
  NcclType type = NcclType::uint8;
  std::uint64_t units = 1;  // of `type`, for one element
  bool operator==(const Native&) const = default;
};
struct NativeReduction {
  Native native;
  NcclOp op = NcclOp::sum;  // premul: to be created
  bool premul = false;
  bool operator==(const NativeReduction&) const = default;
};
// One sentence, without a name in front.
struct Unsupported {
  std::string why;
};

std::variant<Native, Unsupported> movement_of(DType dtype);
std::variant<NativeReduction, Unsupported> reduction_of(OpKind kind, ReduceOp op, DType dtype);

// A factor as premul_sum wants it: one element of that type, in the first size_of(type) bytes.
// REQUIRES: a floating type that reduction_of() allows for premul_sum.
struct Scalar {
  unsigned char bytes[8] = {};
};
Scalar scalar_of(NcclType type, double value);

}  // namespace distrun::nccl
