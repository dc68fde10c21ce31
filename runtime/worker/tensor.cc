#include <distrun/error.h>
#include <distrun/tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace distrun {

std::size_t size_of(DType dtype) {
  switch (dtype) {
    case DType::int8:
    case DType::uint8:
    case DType::boolean:
      return 1;
    case DType::int16:
    case DType::uint16:
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::int32:
    case DType::uint32:
    case DType::float32:
      return 4;
    case DType::int64:
    case DType::uint64:
    case DType::float64:
    case DType::complex64:
      return 8;
    case DType::complex128:
      return 16;
  }
  return 1;
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::int8:
      return "int8";
    case DType::int16:
      return "int16";
    case DType::int32:
      return "int32";
    case DType::int64:
      return "int64";
    case DType::uint8:
      return "uint8";
    case DType::uint16:
      return "uint16";
    case DType::uint32:
      return "uint32";
    case DType::uint64:
      return "uint64";
    case DType::boolean:
      return "bool";
    case DType::float16:
      return "float16";
    case DType::bfloat16:
      return "bfloat16";
    case DType::float32:
      return "float32";
    case DType::float64:
      return "float64";
    case DType::complex64:
      return "complex64";
    case DType::complex128:
      return "complex128";
  }
  return "?";
}

std::string_view to_string(DeviceType type) {
  switch (type) {
    case DeviceType::cpu:
      return "cpu";
    case DeviceType::cuda:
      return "cuda";
    case DeviceType::cuda_host:
      return "cuda_host";
    case DeviceType::rocm:
      return "rocm";
  }
  return "?";
}

std::string to_string(Device device) {
  const std::string type(to_string(device.type));
  return device.type == DeviceType::cpu ? type : type + ":" + std::to_string(device.index);
}

// ---- half precision ----------------------------------------------------------------------------

// binary16: 1 sign, 5 exponent (bias 15), 10 fraction bits; binary32: 1, 8 (bias 127), 23.
float16::float16(float value) {
  const auto from = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>(from >> 16 & 0x8000U);
  const std::uint32_t magnitude = from & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) {  // not a number: stays one, and quiet
    bits = static_cast<std::uint16_t>(sign | 0x7E00U | (magnitude >> 13 & 0x3FFU));
    return;
  }
  if (magnitude >= 0x477FF000U) {  // 65520 and more round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7C00U);
    return;
  }
  if (magnitude < 0x38800000U) {  // below 2^-14: subnormal, in units of 2^-24
    const float units = std::bit_cast<float>(magnitude) * 16777216.0F;
    bits = static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(std::nearbyint(units)));
    return;
  }
  const std::uint32_t odd = magnitude >> 13 & 1U;
  const std::uint32_t rounded = magnitude - (112U << 23) + 0xFFFU + odd;
  bits = static_cast<std::uint16_t>(sign | rounded >> 13);
}

float16::operator float() const {
  const std::uint32_t sign = (bits & 0x8000U) << 16;
  const std::uint32_t magnitude = bits & 0x7FFFU;
  if (magnitude >= 0x7C00U)
    return std::bit_cast<float>(sign | 0x7F800000U | (magnitude & 0x3FFU) << 13);
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) / 16777216.0F;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112U << 23)));
}

bfloat16::bfloat16(float value) {
  const auto from = std::bit_cast<std::uint32_t>(value);
  if ((from & 0x7FFFFFFFU) > 0x7F800000U) {
    bits = static_cast<std::uint16_t>(from >> 16 | 0x40U);
    return;
  }
  bits = static_cast<std::uint16_t>((from + 0x7FFFU + (from >> 16 & 1U)) >> 16);
}

bfloat16::operator float() const {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// ---- shapes ------------------------------------------------------------------------------------

Shape::Shape(std::span<const std::int64_t> sizes) {
  if (sizes.size() > kMaxDimensions)
    throw DistArgumentError("a tensor of " + std::to_string(sizes.size()) +
                            " dimensions; at most 8: give it as fewer");
  for (const std::int64_t size : sizes) {
    sizes_[dimensions_++] = size;
    if (size < 0)
      throw DistArgumentError("a tensor with a negative dimension: " + to_string(*this));
    const auto n = static_cast<std::size_t>(size);
    if (n != 0 && count_ > std::numeric_limits<std::size_t>::max() / n)
      throw DistArgumentError("a tensor that no memory can hold: " + to_string(*this));
    count_ *= n;
  }
}

Shape Shape::flat(std::size_t count) {
  Shape shape;
  // A count that is no signed number cannot be in memory either; who checks it says so.
  constexpr auto kMost = static_cast<std::size_t>(std::numeric_limits<std::int64_t>::max());
  shape.sizes_[0] = static_cast<std::int64_t>(std::min(count, kMost));
  shape.dimensions_ = 1;
  shape.count_ = count;
  return shape;
}

bool Shape::operator==(const Shape& other) const {
  return std::ranges::equal(sizes(), other.sizes());
}

std::string to_string(const Shape& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape.sizes())
    text += (text.size() == 1 ? "" : ", ") + std::to_string(size);
  return text + "]";
}

}  // namespace distrun
