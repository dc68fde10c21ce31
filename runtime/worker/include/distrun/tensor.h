// Tensors as collectives see them: views of dense memory that somebody else owns.
//
//   std::vector<float> gradients(1000);
//   group->all_reduce(gradients);     // from a vector, an array, a span
//   group->all_reduce(distrun::Tensor(pointer, {20, 50}, distrun::DType::bfloat16));
//
// A Tensor may be written to, a ConstTensor not.  Neither owns anything: the memory must stay where
// it is until the call, or the Work of an asynchronous call, is done.  Elements lie one behind the
// other, the last dimension fastest.  Codes of types and devices are DLPack's; dlpack.h converts.
#pragma once

#include <array>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace distrun {

enum class DType : std::uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  boolean,  // one byte, 0 or 1
  float16,
  bfloat16,
  float32,
  float64,
  complex64,   // two float32
  complex128,  // two float64
};
inline constexpr int kDTypes = 15;

std::size_t size_of(DType dtype);  // bytes
std::string_view to_string(DType dtype);

// IEEE 754 binary16, and the upper half of a binary32.  Conversion to them rounds to nearest even.
struct float16 {
  std::uint16_t bits = 0;
  float16() = default;
  explicit float16(float value);
  explicit operator float() const;
  bool operator==(const float16&) const = default;
};
struct bfloat16 {
  std::uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float value);
  explicit operator float() const;
  bool operator==(const bfloat16&) const = default;
};

enum class DeviceType : std::int32_t { cpu = 1, cuda = 2, cuda_host = 3, rocm = 10 };
std::string_view to_string(DeviceType type);

struct Device {
  DeviceType type = DeviceType::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};
std::string to_string(Device device);  // "cuda:1"; of the CPU "cpu"
// Also what is pinned for a GPU.
constexpr bool is_host_memory(Device device) {
  return device.type == DeviceType::cpu || device.type == DeviceType::cuda_host;
}

namespace detail {

template <class T>
struct DTypeOf {};
template <DType D>
struct Is {
  static constexpr DType kValue = D;
};
// clang-format off
template <> struct DTypeOf<std::int8_t> : Is<DType::int8> {};
template <> struct DTypeOf<std::int16_t> : Is<DType::int16> {};
template <> struct DTypeOf<std::int32_t> : Is<DType::int32> {};
template <> struct DTypeOf<std::int64_t> : Is<DType::int64> {};
template <> struct DTypeOf<std::uint8_t> : Is<DType::uint8> {};
template <> struct DTypeOf<std::uint16_t> : Is<DType::uint16> {};
template <> struct DTypeOf<std::uint32_t> : Is<DType::uint32> {};
template <> struct DTypeOf<std::uint64_t> : Is<DType::uint64> {};
template <> struct DTypeOf<bool> : Is<DType::boolean> {};
template <> struct DTypeOf<float16> : Is<DType::float16> {};
template <> struct DTypeOf<bfloat16> : Is<DType::bfloat16> {};
template <> struct DTypeOf<float> : Is<DType::float32> {};
template <> struct DTypeOf<double> : Is<DType::float64> {};
template <> struct DTypeOf<std::complex<float>> : Is<DType::complex64> {};
template <> struct DTypeOf<std::complex<double>> : Is<DType::complex128> {};
// clang-format on

}  // namespace detail

template <class T>
concept Element = requires {
  detail::DTypeOf<T>::kValue;
};

template <Element T>
inline constexpr DType kDTypeOf = detail::DTypeOf<T>::kValue;

// Sizes of the dimensions, the outermost first.  Throws DistArgumentError: more than eight, a
// negative one, or more elements than can be counted.
class Shape {
 public:
  static constexpr std::size_t kMaxDimensions = 8;

  Shape(std::initializer_list<std::int64_t> sizes)  // NOLINT(google-explicit-constructor)
      : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes);
  static Shape flat(std::size_t count);

  std::span<const std::int64_t> sizes() const { return {sizes_.data(), dimensions_}; }
  std::size_t count() const { return count_; }  // of elements
  bool operator==(const Shape& other) const;

 private:
  Shape() = default;
  std::array<std::int64_t, kMaxDimensions> sizes_{};
  std::size_t dimensions_ = 0;
  std::size_t count_ = 1;
};
std::string to_string(const Shape& shape);  // "[20, 50]"

class ConstTensor {
 public:
  ConstTensor(const void* data, const Shape& shape, DType dtype, Device device = {})
      : data_(data), shape_(shape), dtype_(dtype), device_(device) {}
  ConstTensor(const void* data, std::size_t count, DType dtype, Device device = {})
      : ConstTensor(data, Shape::flat(count), dtype, device) {}
  // NOLINTBEGIN(google-explicit-constructor): a view, like std::span
  template <std::ranges::contiguous_range R>
  requires Element<std::remove_cv_t<std::ranges::range_value_t<R>>> ConstTensor(const R& range)
      : ConstTensor(std::ranges::data(range), std::ranges::size(range),
                    kDTypeOf<std::remove_cv_t<std::ranges::range_value_t<R>>>) {}
  // NOLINTEND(google-explicit-constructor)

  const void* data() const { return data_; }
  const Shape& shape() const { return shape_; }
  std::size_t count() const { return shape_.count(); }  // of elements
  DType dtype() const { return dtype_; }
  Device device() const { return device_; }
  std::size_t bytes() const { return count() * size_of(dtype_); }

 private:
  const void* data_;
  Shape shape_;
  DType dtype_;
  Device device_;
};

class Tensor : public ConstTensor {
 public:
  Tensor(void* data, const Shape& shape, DType dtype, Device device = {})
      : ConstTensor(data, shape, dtype, device) {}
  Tensor(void* data, std::size_t count, DType dtype, Device device = {})
      : ConstTensor(data, count, dtype, device) {}
  // NOLINTBEGIN(google-explicit-constructor, bugprone-forwarding-reference-overload): as above; a
  // Tensor is no contiguous range, so copies and moves are not hidden
  template <std::ranges::contiguous_range R>
  requires Element<std::ranges::range_value_t<R>> &&
      (!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
          Tensor(R&& range)
      : Tensor(std::ranges::data(range), std::ranges::size(range),
               kDTypeOf<std::ranges::range_value_t<R>>) {}
  // NOLINTEND(google-explicit-constructor, bugprone-forwarding-reference-overload)

  // It was not const when it came in.
  void* data() const { return const_cast<void*>(ConstTensor::data()); }
};

}  // namespace distrun
