// Tensors from and to DLPack, with whichever dlpack.h the program has: the templates take any
// struct with the members of DLTensor, DLManagedTensor or DLManagedTensorVersioned.
//
//   group->all_reduce(distrun::from_dlpack(*dl_tensor));    // borrowed for the call
//   distrun::DLPackOwner<DLManagedTensorVersioned> owned(managed);    // calls its deleter
//   group->broadcast(owned.tensor(), 0);
//
// Refused in words, with DistArgumentError: types of less than a byte or with several lanes, floats
// that no collective can add up, strides with gaps, more than eight dimensions.
#pragma once

#include <distrun/error.h>
#include <distrun/tensor.h>

#include <concepts>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace distrun {

struct DLPackType {
  std::uint8_t code = 0;
  std::uint8_t bits = 0;
  std::uint16_t lanes = 1;
};
DLPackType dlpack_type(DType dtype);
DType dtype_of(DLPackType type);

// `strides`: in elements; null: none, dense.
Tensor tensor_of_dlpack(void* data, std::int32_t device_type, std::int32_t device_id,
                        std::int32_t dimensions, DLPackType type, const std::int64_t* shape,
                        const std::int64_t* strides, std::uint64_t byte_offset);

template <class T>
concept DLPackTensor = requires(const T& t) {
  { t.data } -> std::convertible_to<void*>;
  t.device.device_type;
  t.device.device_id;
  { t.ndim } -> std::convertible_to<std::int32_t>;
  { t.dtype.code } -> std::convertible_to<std::uint8_t>;
  { t.dtype.lanes } -> std::convertible_to<std::uint16_t>;
  { t.shape } -> std::convertible_to<const std::int64_t*>;
  { t.strides } -> std::convertible_to<const std::int64_t*>;
  { t.byte_offset } -> std::convertible_to<std::uint64_t>;
};

// A view: `from` and its memory must stay.
template <DLPackTensor T>
Tensor from_dlpack(const T& from) {
  return tensor_of_dlpack(from.data, static_cast<std::int32_t>(from.device.device_type),
                          from.device.device_id, from.ndim,
                          {from.dtype.code, from.dtype.bits, from.dtype.lanes}, from.shape,
                          from.strides, from.byte_offset);
}

// Owns a managed tensor: calls its deleter.  Versions other than 1 are refused (and deleted).
template <class Managed>
class DLPackOwner {
 public:
  explicit DLPackOwner(Managed* managed) : managed_(managed) {
    if constexpr (requires { managed->version.major; })
      if (managed->version.major != 1)
        throw DistArgumentError("a DLPack tensor of version " +
                                std::to_string(managed->version.major) + "; there is 1");
  }

  // Throws DistArgumentError if it may only be read.
  Tensor tensor() const {
    if constexpr (requires { managed_->flags; })
      if ((managed_->flags & 1U) != 0)
        throw DistArgumentError("a DLPack tensor that may only be read, as a result");
    return from_dlpack(managed_->dl_tensor);
  }
  ConstTensor const_tensor() const { return from_dlpack(managed_->dl_tensor); }

 private:
  struct Delete {
    void operator()(Managed* managed) const {
      if (managed->deleter != nullptr) managed->deleter(managed);
    }
  };
  std::unique_ptr<Managed, Delete> managed_;
};

// For others to own: `memory` is let go when they call the deleter.
template <class Managed>
Managed* to_dlpack(const Tensor& tensor, const std::shared_ptr<void>& memory) {
  struct Holder {
    Managed managed{};
    std::vector<std::int64_t> shape, strides;
    std::shared_ptr<void> memory;
  };
  auto holder = std::make_unique<Holder>();
  const auto sizes = tensor.shape().sizes();
  holder->shape.assign(sizes.begin(), sizes.end());
  holder->strides.resize(sizes.size());
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    holder->strides[i] = step;
    step *= sizes[i];
  }
  holder->memory = memory;
  Managed& managed = holder->managed;
  auto& dl = managed.dl_tensor;
  dl.data = tensor.data();
  dl.device.device_type =
      static_cast<decltype(dl.device.device_type)>(static_cast<int>(tensor.device().type));
  dl.device.device_id = tensor.device().index;
  dl.ndim = static_cast<std::int32_t>(sizes.size());
  const DLPackType type = dlpack_type(tensor.dtype());
  dl.dtype.code = type.code;
  dl.dtype.bits = type.bits;
  dl.dtype.lanes = type.lanes;
  dl.shape = holder->shape.data();
  dl.strides = holder->strides.data();
  dl.byte_offset = 0;
  if constexpr (requires { managed.version.major; }) {
    managed.version.major = 1;
    managed.version.minor = 0;
  }
  managed.manager_ctx = holder.get();
  managed.deleter = [](Managed* self) { delete static_cast<Holder*>(self->manager_ctx); };
  return &holder.release()->managed;
}

}  // namespace distrun
