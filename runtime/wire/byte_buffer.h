// ByteBuffer: contiguous bytes that are written at the end and taken from the front.
//
// What sockets and codecs share: `prepare` lends room to read into, `commit` keeps what was read,
// `consume` drops what was understood.  Nothing is moved while bytes are consumed, so views into
// the buffer stay good until the next `prepare`, `append` or `shrink`.
#pragma once

#include "runtime/base/check.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>

namespace distrun::wire {

class ByteBuffer {
 public:
  std::string_view view() const { return {data_.get() + begin_, size()}; }
  std::size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  std::size_t capacity() const { return capacity_; }

  // Room for at least `n` bytes behind the last one; not initialised.
  std::span<char> prepare(std::size_t n) {
    if (capacity_ - end_ < n) make_room(n);
    return {data_.get() + end_, capacity_ - end_};
  }
  void commit(std::size_t n) {
    DISTRUN_CHECK(n <= capacity_ - end_);
    end_ += n;
  }
  void consume(std::size_t n) {
    DISTRUN_CHECK(n <= size());
    begin_ += n;
    if (begin_ == end_) begin_ = end_ = 0;
  }
  void append(std::string_view bytes) {
    if (bytes.empty()) return;
    std::memcpy(prepare(bytes.size()).data(), bytes.data(), bytes.size());
    commit(bytes.size());
  }
  // Gives memory back if the buffer is empty and holds more than `keep`.
  void shrink(std::size_t keep) {
    if (!empty() || capacity_ <= keep) return;
    data_.reset();
    capacity_ = 0;
  }

 private:
  // Moves the bytes to the front if that is cheap and enough, else into twice the room.
  void make_room(std::size_t n) {
    const std::size_t held = size();
    if (held + n <= capacity_ && held <= capacity_ / 2) {
      std::memmove(data_.get(), data_.get() + begin_, held);
    } else {
      const std::size_t bigger = std::max(held + n, 2 * capacity_);
      auto moved = std::make_unique_for_overwrite<char[]>(bigger);
      if (held > 0) std::memcpy(moved.get(), data_.get() + begin_, held);
      data_ = std::move(moved);
      capacity_ = bigger;
    }
    begin_ = 0;
    end_ = held;
  }

  std::unique_ptr<char[]> data_;
  std::size_t capacity_ = 0;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

}  // namespace distrun::wire
