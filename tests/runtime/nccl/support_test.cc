#include "runtime/nccl/core/support.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace distrun::nccl {
namespace {

constexpr DType kInt16{0, 16};
constexpr DType kFloat16{2, 16};
constexpr DType kFloat32{2, 32};
constexpr DType kBool{6, 8};
constexpr DType kComplex64{5, 64};

std::string refusal(ReduceOp op, DType dtype) {
  const auto answer = reduction_of(OpKind::all_reduce, op, dtype);
  const auto* no = std::get_if<Unsupported>(&answer);
  return no ? no->why : "";
}
NativeReduction native(ReduceOp op, DType dtype) {
  return std::get<NativeReduction>(reduction_of(OpKind::all_reduce, op, dtype));
}

TEST(Support, EveryReductionOfFloatsButBitsIsNative) {
  for (const DType dtype : {kFloat16, kFloat32, DType{2, 64}, DType{4, 16}}) {
    for (const ReduceOp op : {ReduceOp::sum, ReduceOp::avg, ReduceOp::product, ReduceOp::min,
                              ReduceOp::max, ReduceOp::premul_sum}) {
      EXPECT_EQ(refusal(op, dtype), "") << to_string(dtype) << " " << to_string(op);
    }
  }
  EXPECT_EQ(native(ReduceOp::avg, kFloat32),
            (NativeReduction{{NcclType::float32, 1}, NcclOp::avg, false}));
}

TEST(Support, BitOperationsAreRefusedForEveryType) {
  for (const ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor}) {
    EXPECT_NE(refusal(op, {0, 32}).find("NCCL has no bit operations"), std::string::npos);
  }
  EXPECT_EQ(refusal(ReduceOp::bor, {0, 32}), "bor of int32: NCCL has no bit operations");
}

TEST(Support, TypesNcclLacksAreMovedAsBytesAndNotReduced) {
  EXPECT_EQ(std::get<Native>(movement_of(kInt16)), (Native{NcclType::uint8, 2}));
  EXPECT_EQ(refusal(ReduceOp::sum, kInt16), "sum of int16: NCCL cannot reduce int16, only move it");
  EXPECT_EQ(std::get<Native>(movement_of({14, 8})), (Native{NcclType::uint8, 1}));
  EXPECT_NE(refusal(ReduceOp::sum, {14, 8}), "");
}

TEST(Support, SumOfBoolsIsAnyOfThem) {
  EXPECT_EQ(native(ReduceOp::sum, kBool),
            (NativeReduction{{NcclType::uint8, 1}, NcclOp::max, false}));
  EXPECT_EQ(native(ReduceOp::product, kBool).op, NcclOp::product);
  EXPECT_NE(refusal(ReduceOp::avg, kBool), "");
}

TEST(Support, ComplexIsTwoRealsWhereThatIsTheSame) {
  EXPECT_EQ(native(ReduceOp::sum, kComplex64).native, (Native{NcclType::float32, 2}));
  EXPECT_EQ(native(ReduceOp::avg, {5, 128}).native, (Native{NcclType::float64, 2}));
  EXPECT_TRUE(native(ReduceOp::premul_sum, kComplex64).premul);
  EXPECT_EQ(
      refusal(ReduceOp::product, kComplex64),
      "product of complex64: all_reduce has only sum, avg and premul_sum for complex numbers");
}

TEST(Support, AFactorNeedsFloats) {
  EXPECT_NE(refusal(ReduceOp::premul_sum, {0, 32}).find("a factor needs"), std::string::npos);
  EXPECT_NE(refusal(ReduceOp::premul_sum, {10, 8}).find("a factor needs"), std::string::npos);
}

TEST(Support, AnUnknownTypeIsNamedByItsNumbers) {
  EXPECT_EQ(refusal(ReduceOp::sum, {77, 24}), "unknown element type dtype(code 77, 24 bits)");
  EXPECT_TRUE(std::holds_alternative<Unsupported>(movement_of({77, 24})));
}

std::uint16_t half(double value, NcclType type) {
  const Scalar scalar = scalar_of(type, value);
  std::uint16_t bits = 0;
  std::memcpy(&bits, scalar.bytes, sizeof bits);
  return bits;
}

TEST(Scalar, IsOneElementOfTheType) {
  float single = 0;
  const Scalar s = scalar_of(NcclType::float32, 0.1);
  std::memcpy(&single, s.bytes, sizeof single);
  EXPECT_EQ(single, 0.1F);
  EXPECT_EQ(half(1.0, NcclType::bfloat16), 0x3f80);
  EXPECT_EQ(half(0.5, NcclType::bfloat16), 0x3f00);
  EXPECT_EQ(half(1.00390625, NcclType::bfloat16), 0x3f80);  // a tie: to even
  EXPECT_EQ(half(1.01171875, NcclType::bfloat16), 0x3f82);
}

TEST(Scalar, HalfPrecisionIsRoundedAsTheHardwareDoes) {
  EXPECT_EQ(half(1.0, NcclType::float16), 0x3c00);
  EXPECT_EQ(half(-2.0, NcclType::float16), 0xc000);
  EXPECT_EQ(half(65504.0, NcclType::float16), 0x7bff);
  EXPECT_EQ(half(65519.0, NcclType::float16), 0x7bff);
  EXPECT_EQ(half(65520.0, NcclType::float16), 0x7c00);
  EXPECT_EQ(half(0.1, NcclType::float16), 0x2e66);
  EXPECT_EQ(half(0x1p-24, NcclType::float16), 0x0001);
  EXPECT_EQ(half(0x1p-14, NcclType::float16), 0x0400);
  EXPECT_EQ(half(0x1.ffcp-15, NcclType::float16), 0x0400);  // the largest below rounds up
  EXPECT_EQ(half(std::numeric_limits<double>::infinity(), NcclType::bfloat16), 0x7f80);
  EXPECT_EQ(half(std::nan(""), NcclType::float16) & 0x7c00, 0x7c00);
  EXPECT_NE(half(std::nan(""), NcclType::bfloat16) & 0x007f, 0);
}

}  // namespace
}  // namespace distrun::nccl
