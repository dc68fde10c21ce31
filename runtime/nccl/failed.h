// How the inside of this backend says that something failed; plugin.cc turns it into a status and a
// text at the border.
#pragma once

#include <distrun/backend_abi.h>

#include <stdexcept>
#include <string>

namespace distrun::nccl {

class Failed : public std::runtime_error {
 public:
  Failed(drb_status status, const std::string& text, int culprit = -1)
      : std::runtime_error(text), status_(status), culprit_(culprit) {}
  drb_status status() const { return status_; }
  int culprit() const { return culprit_; }

 private:
  drb_status status_;
  int culprit_;
};

}  // namespace distrun::nccl
