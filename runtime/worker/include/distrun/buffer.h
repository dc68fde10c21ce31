// Memory for tensors that the other ranks of this host can read where it is: a collective of
// tensors that lie in it on all ranks saves the copies into the library and out of it.
//
//   distrun::Buffer buffer = world->allocate(64 << 20);      // bytes; zeros
//   const std::span<float> gradients = buffer.as<float>();
//   world->all_reduce(gradients);
//
// It is good for every group of this process, and may outlive the one that gave it.  No rank needs
// to know what memory the others have: where one of them has other memory, data is copied as
// always.  A child of fork() that uses it shares it with its parent.  Before the process is in a
// group with another rank of its host it gets ordinary memory.
#pragma once

#include <distrun/tensor.h>

#include <cstddef>
#include <memory>
#include <span>

namespace distrun {

class Buffer {
 public:
  // Gives it back; never throws.
  using Release = void (*)(std::byte* data, std::size_t bytes);

  Buffer() = default;  // of no bytes
  Buffer(std::byte* data, std::size_t bytes, bool registered, Release release)
      : memory_(data, Free{release, bytes}), registered_(registered) {}

  std::byte* data() const { return memory_.get(); }  // at a page's beginning; null: no bytes
  std::size_t bytes() const { return memory_ ? memory_.get_deleter().bytes : 0; }
  // The whole of it as elements; what is left at the end is not in it.
  template <Element T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data()), bytes() / sizeof(T)};
  }
  // False: ordinary memory, since this host's ranks cannot share any, or no more of it.
  bool is_registered() const { return memory_ && registered_; }

 private:
  struct Free {
    Release release;
    std::size_t bytes;
    void operator()(std::byte* data) const { release(data, bytes); }
  };
  std::unique_ptr<std::byte, Free> memory_;
  bool registered_ = false;
};

}  // namespace distrun
