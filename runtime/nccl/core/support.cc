#include "runtime/nccl/core/support.h"

#include "runtime/base/check.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

namespace distrun::nccl {
namespace {

struct Row {
  DType dtype;
  const char* name;
  bool reducible;
  NcclType type;  // of reductions
};

// DLPack's codes.
enum Code : std::uint8_t { kInt = 0, kUint = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

constexpr std::array kRows{
    Row{{kInt, 8}, "int8", true, NcclType::int8},
    Row{{kInt, 16}, "int16", false, {}},
    Row{{kInt, 32}, "int32", true, NcclType::int32},
    Row{{kInt, 64}, "int64", true, NcclType::int64},
    Row{{kUint, 8}, "uint8", true, NcclType::uint8},
    Row{{kUint, 16}, "uint16", false, {}},
    Row{{kUint, 32}, "uint32", true, NcclType::uint32},
    Row{{kUint, 64}, "uint64", true, NcclType::uint64},
    Row{{kFloat, 16}, "float16", true, NcclType::float16},
    Row{{kFloat, 32}, "float32", true, NcclType::float32},
    Row{{kFloat, 64}, "float64", true, NcclType::float64},
    Row{{kBfloat, 16}, "bfloat16", true, NcclType::bfloat16},
    Row{{kComplex, 32}, "complex32", true, NcclType::float16},
    Row{{kComplex, 64}, "complex64", true, NcclType::float32},
    Row{{kComplex, 128}, "complex128", true, NcclType::float64},
    Row{{kBool, 8}, "bool", true, NcclType::uint8},
    Row{{7, 8}, "float8_e3m4", false, {}},
    Row{{8, 8}, "float8_e4m3", false, {}},
    Row{{9, 8}, "float8_e4m3b11fnuz", false, {}},
    Row{{10, 8}, "float8_e4m3fn", true, NcclType::float8e4m3},
    Row{{11, 8}, "float8_e4m3fnuz", false, {}},
    Row{{12, 8}, "float8_e5m2", true, NcclType::float8e5m2},
    Row{{13, 8}, "float8_e5m2fnuz", false, {}},
    Row{{14, 8}, "float8_e8m0fnu", false, {}},
};

const Row* row_of(DType dtype) {
  for (const Row& row : kRows) {
    if (row.dtype == dtype) return &row;
  }
  return nullptr;
}

bool is_floating(NcclType type) {
  switch (type) {
    case NcclType::float16:
    case NcclType::float32:
    case NcclType::float64:
    case NcclType::bfloat16:
      return true;
    case NcclType::float8e4m3:
    case NcclType::float8e5m2:
    case NcclType::int8:
    case NcclType::uint8:
    case NcclType::int32:
    case NcclType::uint32:
    case NcclType::int64:
    case NcclType::uint64:
      return false;
  }
  return false;
}

// To the nearest, ties to even, as the hardware does.  Also right for infinities; a NaN stays one.
std::uint16_t to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (std::isnan(value)) return static_cast<std::uint16_t>(bits >> 16 | 0x40);
  return static_cast<std::uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

std::uint16_t to_float16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(bits >> 16 & 0x8000);
  if (std::isnan(value)) return sign | 0x7e00;
  const float magnitude = std::fabs(value);
  if (magnitude >= 65520.0F) return sign | 0x7c00;
  if (magnitude < 0x1p-14F) {  // a multiple of 2^-24
    return sign | static_cast<std::uint16_t>(std::nearbyint(magnitude * 0x1p24F));
  }
  const std::uint32_t rounded = (bits & 0x7fffffff) + 0xfff + (bits >> 13 & 1);
  return sign | static_cast<std::uint16_t>((rounded >> 13) - (112U << 10));
}

}  // namespace

std::size_t size_of(NcclType type) {
  switch (type) {
    case NcclType::int8:
    case NcclType::uint8:
    case NcclType::float8e4m3:
    case NcclType::float8e5m2:
      return 1;
    case NcclType::float16:
    case NcclType::bfloat16:
      return 2;
    case NcclType::int32:
    case NcclType::uint32:
    case NcclType::float32:
      return 4;
    case NcclType::int64:
    case NcclType::uint64:
    case NcclType::float64:
      return 8;
  }
  return 0;
}

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::broadcast:
      return "broadcast";
    case OpKind::all_reduce:
      return "all_reduce";
    case OpKind::reduce:
      return "reduce";
    case OpKind::all_gather:
      return "all_gather";
    case OpKind::gather:
      return "gather";
    case OpKind::scatter:
      return "scatter";
    case OpKind::reduce_scatter:
      return "reduce_scatter";
    case OpKind::all_to_all:
      return "all_to_all";
    case OpKind::send:
      return "send";
    case OpKind::recv:
      return "recv";
    case OpKind::barrier:
      return "barrier";
  }
  return "?";
}

std::string_view to_string(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::avg:
      return "avg";
    case ReduceOp::product:
      return "product";
    case ReduceOp::min:
      return "min";
    case ReduceOp::max:
      return "max";
    case ReduceOp::band:
      return "band";
    case ReduceOp::bor:
      return "bor";
    case ReduceOp::bxor:
      return "bxor";
    case ReduceOp::premul_sum:
      return "premul_sum";
  }
  return "?";
}

std::string to_string(DType dtype) {
  if (const Row* row = row_of(dtype)) return row->name;
  return "dtype(code " + std::to_string(dtype.code) + ", " + std::to_string(dtype.bits) + " bits)";
}

std::variant<Native, Unsupported> movement_of(DType dtype) {
  const Row* row = row_of(dtype);
  if (!row) return Unsupported{"unknown element type " + to_string(dtype)};
  const bool native = row->reducible && dtype.code != kComplex;
  if (native) return Native{row->type, 1};
  return Native{NcclType::uint8, std::uint64_t{dtype.bits} / 8};
}

std::variant<NativeReduction, Unsupported> reduction_of(OpKind kind, ReduceOp op, DType dtype) {
  const auto refuse = [&](const std::string& why) {
    return Unsupported{std::string(to_string(op)) + " of " + to_string(dtype) + ": " + why};
  };
  const Row* row = row_of(dtype);
  if (!row) return Unsupported{"unknown element type " + to_string(dtype)};
  if (op == ReduceOp::band || op == ReduceOp::bor || op == ReduceOp::bxor) {
    return refuse("NCCL has no bit operations");
  }
  if (!row->reducible) {
    return refuse("NCCL cannot reduce " + std::string(row->name) + ", only move it");
  }
  const bool complex = dtype.code == kComplex;
  const bool linear = op == ReduceOp::sum || op == ReduceOp::avg || op == ReduceOp::premul_sum;
  if (complex && !linear) {
    return refuse(std::string(to_string(kind)) +
                  " has only sum, avg and premul_sum for complex numbers");
  }
  NativeReduction out{.native = {row->type, complex ? 2U : 1U}};
  switch (op) {
    case ReduceOp::sum:
      out.op = dtype.code == kBool ? NcclOp::max : NcclOp::sum;
      return out;
    case ReduceOp::avg:
      if (dtype.code == kBool) return refuse("the average of truth values is none");
      out.op = NcclOp::avg;
      return out;
    case ReduceOp::product:
      out.op = NcclOp::product;
      return out;
    case ReduceOp::min:
      out.op = NcclOp::min;
      return out;
    case ReduceOp::max:
      out.op = NcclOp::max;
      return out;
    case ReduceOp::premul_sum:
      if (!is_floating(row->type)) {
        return refuse("a factor needs float16, bfloat16, float32 or float64 elements");
      }
      out.premul = true;
      return out;
    case ReduceOp::band:
    case ReduceOp::bor:
    case ReduceOp::bxor:
      break;
  }
  return refuse("unknown operation");
}

Scalar scalar_of(NcclType type, double value) {
  DISTRUN_CHECK(is_floating(type));
  Scalar out;
  const auto put = [&](auto x) { std::memcpy(out.bytes, &x, sizeof x); };
  if (type == NcclType::float64) {
    put(value);
  } else if (type == NcclType::float32) {
    put(static_cast<float>(value));
  } else if (type == NcclType::bfloat16) {
    put(to_bfloat16(static_cast<float>(value)));
  } else {
    put(to_float16(static_cast<float>(value)));
  }
  return out;
}

}  // namespace distrun::nccl
