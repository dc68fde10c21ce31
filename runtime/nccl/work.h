// One submitted operation: the handle's shared part.
#pragma once

#include "runtime/nccl/group.h"

#include <atomic>
#include <memory>

namespace distrun::nccl {

class Work {
 public:
  enum class State { pending, done, failed };

  Work(std::shared_ptr<Group> group, const Label& label);
  ~Work();
  Work(const Work&) = delete;
  Work& operator=(const Work&) = delete;

  State test();
  // See distrun/backend_abi.h.  Throws Failed.
  void wait(Stream stream, std::chrono::milliseconds timeout, bool host);
  const Label& label() const { return label_; }
  const std::shared_ptr<Group>& group() const { return group_; }

 private:
  friend class Group;
  void wait_on_host(std::chrono::milliseconds timeout);

  const std::shared_ptr<Group> group_;
  const Label label_;
  bool barrier_ = false;
  bool empty_ = false;     // nothing was enqueued
  bool captured_ = false;  // part of a CUDA graph: it runs later, as often as the graph does
  Event start_ = nullptr;
  Event end_ = nullptr;
  std::atomic<State> state_{State::pending};
};

}  // namespace distrun::nccl
