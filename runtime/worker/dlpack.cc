#include <distrun/dlpack.h>

#include <array>
#include <span>
#include <string>

namespace distrun {
namespace {

// DLPack's DLDataTypeCode.
enum Code : std::uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };

struct Row {
  DType dtype;
  std::uint8_t code;
  std::uint8_t bits;
};
constexpr std::array<Row, kDTypes> kRows{{
    {DType::int8, kInt, 8},
    {DType::int16, kInt, 16},
    {DType::int32, kInt, 32},
    {DType::int64, kInt, 64},
    {DType::uint8, kUInt, 8},
    {DType::uint16, kUInt, 16},
    {DType::uint32, kUInt, 32},
    {DType::uint64, kUInt, 64},
    {DType::boolean, kBool, 8},
    {DType::float16, kFloat, 16},
    {DType::bfloat16, kBfloat, 16},
    {DType::float32, kFloat, 32},
    {DType::float64, kFloat, 64},
    {DType::complex64, kComplex, 64},
    {DType::complex128, kComplex, 128},
}};

}  // namespace

DLPackType dlpack_type(DType dtype) {
  for (const Row& row : kRows)
    if (row.dtype == dtype) return {row.code, row.bits, 1};
  return {};
}

DType dtype_of(DLPackType type) {
  for (const Row& row : kRows)
    if (row.code == type.code && row.bits == type.bits && type.lanes == 1) return row.dtype;
  throw DistArgumentError("a DLPack tensor of type code " + std::to_string(type.code) + ", " +
                          std::to_string(type.bits) + " bits, " + std::to_string(type.lanes) +
                          " lanes, which collectives do not know");
}

Tensor tensor_of_dlpack(void* data, std::int32_t device_type, std::int32_t device_id,
                        std::int32_t dimensions, DLPackType type, const std::int64_t* shape,
                        const std::int64_t* strides, std::uint64_t byte_offset) {
  if (dimensions < 0 || (dimensions > 0 && shape == nullptr))
    throw DistArgumentError("a DLPack tensor of " + std::to_string(dimensions) +
                            " dimensions without a shape");
  const Shape sizes(std::span(shape, static_cast<std::size_t>(dimensions)));
  const DType dtype = dtype_of(type);
  std::int64_t dense = 1;
  for (std::int32_t i = dimensions; strides != nullptr && sizes.count() > 0 && i-- > 0;) {
    if (shape[i] != 1 && strides[i] != dense) {
      std::string text;
      for (std::int32_t k = 0; k < dimensions; ++k)
        text += (k == 0 ? "" : ", ") + std::to_string(strides[k]);
      throw DistArgumentError("a DLPack tensor of shape " + to_string(sizes) + " with strides [" +
                              text + "], which is not dense; make it contiguous first");
    }
    dense *= shape[i];
  }
  return {static_cast<std::byte*>(data) + byte_offset, sizes, dtype,
          Device{static_cast<DeviceType>(device_type), device_id}};
}

}  // namespace distrun
