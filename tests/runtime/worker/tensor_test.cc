#include "runtime/worker/reduction.h"
#include <distrun/error.h>
#include <distrun/tensor.h>

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace distrun {
namespace {

TEST(Float16, EveryNumberSurvivesTheWayToFloat32AndBack) {
  for (std::uint32_t bits = 0; bits <= 0xFFFF; ++bits) {
    float16 half;
    half.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(half);
    if (std::isnan(wide))
      EXPECT_TRUE(std::isnan(static_cast<float>(float16(wide))));
    else
      EXPECT_EQ(float16(wide).bits, bits);
  }
}

TEST(Float16, RoundsToNearestAndToEvenHalfWay) {
  EXPECT_EQ(static_cast<float>(float16(1.0F)), 1.0F);
  EXPECT_EQ(static_cast<float>(float16(2049.0F)), 2048.0F);  // half way between 2048 and 2050
  EXPECT_EQ(static_cast<float>(float16(2051.0F)), 2052.0F);
  EXPECT_EQ(static_cast<float>(float16(65519.0F)), 65504.0F);
  EXPECT_EQ(static_cast<float>(float16(65520.0F)), std::numeric_limits<float>::infinity());
  EXPECT_EQ(static_cast<float>(float16(-1e9F)), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(float16(std::ldexp(1.0F, -25)).bits, 0);  // half of the smallest: to even
  EXPECT_EQ(float16(std::ldexp(1.5F, -25)).bits, 1);
}

TEST(BFloat16, RoundsToNearestAndKeepsWhatIsNoNumber) {
  EXPECT_EQ(static_cast<float>(bfloat16(257.0F)), 256.0F);
  EXPECT_EQ(static_cast<float>(bfloat16(259.0F)), 260.0F);
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::nanf("")))));
  EXPECT_EQ(static_cast<float>(bfloat16(3.4e38F)), std::numeric_limits<float>::infinity());
}

TEST(Tensor, IsMadeFromAnythingContiguousAndKnowsItsType) {
  std::vector<double> vector(6);
  EXPECT_EQ(Tensor(vector).dtype(), DType::float64);
  EXPECT_EQ(Tensor(vector).bytes(), 48U);
  const std::array<std::int16_t, 3> array{};
  EXPECT_EQ(ConstTensor(array).dtype(), DType::int16);
  const Tensor matrix(vector.data(), {2, 3}, DType::float64);
  EXPECT_EQ(matrix.count(), 6U);
  EXPECT_EQ(to_string(matrix.shape()), "[2, 3]");
  EXPECT_EQ(Tensor(vector.data(), Shape({}), DType::float64).count(), 1U);
}

TEST(Tensor, ShapesThatCannotBeAreRefused) {
  EXPECT_THROW(Shape({1, 1, 1, 1, 1, 1, 1, 1, 1}), DistArgumentError);
  EXPECT_THROW(Shape({2, -1}), DistArgumentError);
  EXPECT_THROW(Shape({std::numeric_limits<std::int64_t>::max(), 4}), DistArgumentError);
  EXPECT_EQ(Shape({std::numeric_limits<std::int64_t>::max(), 0}).count(), 0U);
}

TEST(Reduction, WhatATypeDoesNotHaveIsSaid) {
  EXPECT_EQ(why_no_reduction(DType::int32, ReduceOp::avg),
            "avg of int32: it needs floating point or complex numbers");
  EXPECT_EQ(why_no_reduction(DType::float32, ReduceOp::band),
            "band of float32: it needs integers or bool");
  EXPECT_EQ(why_no_reduction(DType::complex64, ReduceOp::max),
            "max of complex64: complex numbers have no order");
  EXPECT_EQ(why_no_reduction(DType::boolean, ReduceOp::sum), "");
}

// 1 + 2^-12, 4096 times: added up in 16 bits it would stay at what the first rounding gave.
TEST(Reduction, SixteenBitNumbersAreAddedUpAsFloat32) {
  const float16 one(1.0F), little(std::ldexp(1.0F, -12));
  std::vector<const void*> inputs{&one};
  inputs.resize(4097, &little);
  float16 sum;
  combine_all(DType::float16, ReduceOp::sum, &sum, inputs, 1);
  EXPECT_EQ(static_cast<float>(sum), 2.0F);
}

TEST(Reduction, WhatIsNoNumberStaysNoNumber) {
  const float nan = std::nanf(""), one = 1;
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max})
    for (const auto& [a, b] : {std::pair{nan, one}, std::pair{one, nan}}) {
      float result = a;
      combine(DType::float32, op, &result, &b, 1);
      EXPECT_TRUE(std::isnan(result));
    }
}

}  // namespace
}  // namespace distrun
