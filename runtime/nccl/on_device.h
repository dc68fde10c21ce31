// What the calling thread is set to, changed for as long as an object lives.
#pragma once

#include "runtime/nccl/api.h"

namespace distrun::nccl {

// Its queries end no capture of a graph.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Api& api) : api_(api) {
    set_ = api.exchange_capture_mode(&mode_) == CudaResult::success;
  }
  ~RelaxedCapture() {
    if (set_) api_.exchange_capture_mode(&mode_);
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  const Api& api_;
  int mode_ = kRelaxed;
  bool set_ = false;
};

// Its current device.  A negative one: nothing is changed.
class OnDevice {
 public:
  OnDevice(const Api& api, int device) : api_(api) {
    int current = -1;
    if (device < 0) return;
    result_ = api.get_device(&current);
    if (result_ != CudaResult::success || current == device) return;
    result_ = api.set_device(device);
    before_ = current;
  }
  ~OnDevice() {
    if (before_ >= 0) api_.set_device(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  CudaResult result() const { return result_; }

 private:
  const Api& api_;
  int before_ = -1;
  CudaResult result_ = CudaResult::success;
};

}  // namespace distrun::nccl
