// A backend that is loaded, or could not be: the functions of backend_abi.h, and what their errors
// are in C++.
#pragma once

#include <distrun/backend.h>
#include <distrun/tensor.h>

#include <string>
#include <vector>

namespace distrun {

class BackendLibrary {
 public:
  // Loads it when it is first asked for.  Throws DistUnsupportedError: there is none of that name,
  // its library cannot be loaded or is no backend, or it cannot run on this machine.  "gloo" is
  // none.
  static const BackendLibrary& named(const std::string& name);

  const std::string& name() const { return name_; }
  const drb_backend& functions() const { return *functions_; }
  const std::vector<DeviceType>& devices() const { return devices_; }
  bool can(std::uint32_t capability) const { return (functions_->capabilities & capability) != 0; }
  // What it is and runs on, in words.
  const std::string& description() const { return description_; }

  // Throws the DistError that a status and the calling thread's last error stand for.
  void check(drb_status status) const;

  // REQUIRES: use named().
  BackendLibrary(std::string name, const drb_backend* functions);

 private:
  const std::string name_;
  const drb_backend* const functions_;
  std::vector<DeviceType> devices_;
  std::string description_;
};

}  // namespace distrun
