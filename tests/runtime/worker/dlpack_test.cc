#include <distrun/dlpack.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

namespace distrun {
namespace {

// As in dlpack.h 0.6 and 1.0: a layout that does not change.
struct Context {
  std::int32_t device_type;
  std::int32_t device_id;
};
struct Type {
  std::uint8_t code;
  std::uint8_t bits;
  std::uint16_t lanes;
};
struct Dense {
  void* data;
  Context device;
  std::int32_t ndim;
  Type dtype;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct Managed {
  Dense dl_tensor;
  void* manager_ctx;
  void (*deleter)(Managed* self);
};
struct Version {
  std::uint32_t major;
  std::uint32_t minor;
};
struct Versioned {
  Version version;
  void* manager_ctx;
  void (*deleter)(Versioned* self);
  std::uint64_t flags;
  Dense dl_tensor;
};

struct Example {
  std::array<float, 8> memory{};
  std::array<std::int64_t, 2> shape{2, 3};
  std::array<std::int64_t, 2> strides{3, 1};
  Dense dense{memory.data(), {1, 0}, 2, {2, 32, 1}, shape.data(), strides.data(), 4};
};

template <class F>
std::string refused(F f) {
  try {
    f();
  } catch (const DistArgumentError& error) {
    return error.what();
  }
  return "taken";
}

TEST(DLPack, ABorrowedTensorIsAViewOfItsMemory) {
  Example example;
  const Tensor tensor = from_dlpack(example.dense);
  EXPECT_EQ(tensor.data(), example.memory.data() + 1) << "behind the offset";
  EXPECT_EQ(tensor.shape(), Shape({2, 3}));
  EXPECT_EQ(tensor.dtype(), DType::float32);
  example.dense.strides = nullptr;
  EXPECT_EQ(from_dlpack(example.dense).count(), 6U);
}

TEST(DLPack, EveryTypeGoesThereAndBack) {
  for (int i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(dtype_of(dlpack_type(dtype)), dtype);
    EXPECT_EQ(dlpack_type(dtype).bits, size_of(dtype) * 8);
  }
}

TEST(DLPack, WhatNoCollectiveTakesIsRefusedInWords) {
  Example example;
  example.strides = {6, 2};
  EXPECT_EQ(refused([&] { from_dlpack(example.dense); }),
            "a DLPack tensor of shape [2, 3] with strides [6, 2], which is not dense; make it "
            "contiguous first");
  example.strides = {3, 1};
  example.dense.dtype = {2, 32, 4};
  EXPECT_THAT(refused([&] { from_dlpack(example.dense); }), ::testing::HasSubstr("4 lanes"));
  example.dense.dtype = {10, 8, 1};  // an 8-bit float
  EXPECT_THAT(refused([&] { from_dlpack(example.dense); }), ::testing::HasSubstr("type code 10"));
}

TEST(DLPack, AnOwnedTensorIsDeletedOnceAndReadOnlyOnesAreNoResults) {
  Example example;
  static int deleted;
  deleted = 0;
  const auto deleter = [](Versioned*) { ++deleted; };
  Versioned managed{{1, 1}, nullptr, deleter, 1, example.dense};
  {
    const DLPackOwner<Versioned> owner(&managed);
    EXPECT_EQ(owner.const_tensor().count(), 6U);
    EXPECT_THAT(refused([&] { owner.tensor(); }), ::testing::HasSubstr("only be read"));
  }
  EXPECT_EQ(deleted, 1);
  managed.version.major = 2;
  EXPECT_THAT(refused([&] { DLPackOwner<Versioned> owner(&managed); }),
              ::testing::HasSubstr("of version 2"));
  EXPECT_EQ(deleted, 2);
}

TEST(DLPack, WhatIsGivenAwayKeepsItsMemoryUntilItIsDeleted) {
  const auto memory = std::make_shared<std::vector<double>>(6);
  Managed* const managed =
      to_dlpack<Managed>(Tensor(memory->data(), {2, 3}, DType::float64), memory);
  EXPECT_EQ(memory.use_count(), 2);
  EXPECT_EQ(managed->dl_tensor.strides[0], 3);
  EXPECT_EQ(managed->dl_tensor.dtype.bits, 64);
  EXPECT_EQ(from_dlpack(managed->dl_tensor).data(), memory->data());
  managed->deleter(managed);
  EXPECT_EQ(memory.use_count(), 1);
}

}  // namespace
}  // namespace distrun
