// Ranks as threads, and the ABI with C++'s comforts: what tests and the check on real GPUs are
// written with.
#pragma once

#include "tests/runtime/nccl/memory_store.h"
#include <distrun/backend_abi.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace distrun::nccl::testing {

// A status, and what the calling thread was told with it.
struct Answer {
  drb_status status = DRB_OK;
  std::string text;
  int culprit = -1;
  bool ok() const { return status == DRB_OK; }
};
Answer answer_of(const drb_backend& backend, drb_status status);

template <class T>
constexpr std::uint8_t kCode = std::is_same_v<T, bool>       ? 6
                               : std::is_floating_point_v<T> ? 2
                               : std::is_signed_v<T>         ? 0
                                                             : 1;

template <class T>
drb_tensor tensor(T* data, std::size_t count, int device) {
  return {.data = const_cast<std::remove_const_t<T>*>(data),
          .count = count,
          .dtype_code = kCode<std::remove_const_t<T>>,
          .dtype_bits = 8 * sizeof(T),
          .reserved = 0,
          .device_type = 2,
          .device_index = device,
          .reserved2 = 0};
}

// An operation that owns what it points to.
struct Op {
  drb_op raw{};
  std::vector<drb_tensor> inputs;
  std::vector<drb_tensor> outputs;
  std::vector<std::uint64_t> input_splits;
  std::vector<std::uint64_t> output_splits;

  explicit Op(drb_op_kind kind) { raw.kind = kind; }
  Op& in(drb_tensor t) { return inputs.push_back(t), *this; }
  Op& out(drb_tensor t) { return outputs.push_back(t), *this; }
  Op& root(int rank) { return raw.root = rank, *this; }
  Op& peer(int rank) { return raw.peer = rank, *this; }
  Op& reduce(drb_reduce_op op) { return raw.reduce_op = op, *this; }
  Op& premul(double factor) { return raw.premul = factor, reduce(DRB_PREMUL_SUM); }
  Op& splits(std::vector<std::uint64_t> to, std::vector<std::uint64_t> from) {
    return input_splits = std::move(to), output_splits = std::move(from), *this;
  }
  const drb_op* get();
};

struct Call {
  bool async = false;
  void* stream = nullptr;
  std::int64_t timeout_ms = 0;
};

class TestWork {
 public:
  TestWork() = default;
  TestWork(const drb_backend& backend, drb_work* work) : backend_(&backend), work_(work) {}
  ~TestWork() { reset(); }
  TestWork(TestWork&& other) noexcept
      : backend_(other.backend_), work_(std::exchange(other.work_, nullptr)) {}
  TestWork& operator=(TestWork&& other) noexcept {
    reset();
    backend_ = other.backend_;
    work_ = std::exchange(other.work_, nullptr);
    return *this;
  }

  // On the stream; then also what is enqueued there later sees the result.
  Answer wait_on(void* stream) const;
  Answer wait(std::int64_t timeout_ms = 0) const;
  drb_work_state state() const;
  std::int64_t sequence() const { return backend_->work_sequence(work_); }
  drb_work* raw() const { return work_; }
  void reset();

 private:
  const drb_backend* backend_ = nullptr;
  drb_work* work_ = nullptr;
};

class TestGroup {
 public:
  TestGroup() = default;
  TestGroup(const drb_backend& backend, drb_group* group) : backend_(&backend), group_(group) {}
  ~TestGroup() { close(); }
  TestGroup(TestGroup&& other) noexcept
      : backend_(other.backend_), group_(std::exchange(other.group_, nullptr)) {}
  TestGroup& operator=(TestGroup&& other) noexcept {
    close();
    backend_ = other.backend_;
    group_ = std::exchange(other.group_, nullptr);
    return *this;
  }

  explicit operator bool() const { return group_ != nullptr; }
  Answer submit(Op op, Call call = {}, TestWork* work = nullptr) const;
  Answer submit_all(std::vector<Op> ops, Call call = {}, TestWork* work = nullptr) const;
  Answer check() const { return answer_of(*backend_, backend_->check(group_)); }
  Answer abort(const std::string& why, int culprit = -1) const {
    return answer_of(*backend_, backend_->abort(group_, why.c_str(), culprit));
  }
  Answer close(std::int64_t timeout_ms = 20'000);
  drb_group* raw() const { return group_; }

 private:
  const drb_backend* backend_ = nullptr;
  drb_group* group_ = nullptr;
};

// How a group is made; every rank has its own device of the same number.
struct GroupSpec {
  int rank = 0;
  int world_size = 1;
  bool eager = false;
  int device = -2;  // -2: the rank's number
  std::int64_t timeout_ms = 20'000;
  std::string name = "g";
  std::vector<std::pair<std::string, std::string>> options = {};

  std::vector<drb_option> pairs = {};  // for raw()

  // The struct, valid as long as this is.
  drb_group_options raw(MemoryStore& store);
};

struct Made {
  Answer answer;
  TestGroup group;
};
Made make_group(const drb_backend& backend, MemoryStore& store, GroupSpec spec);
Made split_group(const drb_backend& backend, MemoryStore& store, const TestGroup& parent,
                 int colour, GroupSpec spec);
Made shrink_group(const drb_backend& backend, MemoryStore& store, const TestGroup& parent,
                  const std::vector<std::int32_t>& exclude, bool abort, GroupSpec spec);

// Runs f(rank) in a thread each, and waits for all.  What one throws is thrown here.
void run_ranks(int n, const std::function<void(int rank)>& f);

}  // namespace distrun::nccl::testing
