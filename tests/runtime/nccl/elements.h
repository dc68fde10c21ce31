// Arithmetic on arrays whose element type is known at run time only: what the double reduces with,
// and what tests compare with.
#pragma once

#include "runtime/nccl/core/codes.h"

#include <cstddef>
#include <string>
#include <vector>

namespace distrun::nccl::testing {

double load(const void* data, std::size_t index, NcclType type);
void store(void* data, std::size_t index, NcclType type, double value);

struct Reduction {
  NcclOp op = NcclOp::sum;
  bool premul = false;
  double factor = 1;
  const void* factor_at = nullptr;  // on the device, read when it runs
  // Each rank has a factor of its own.
  bool alike(const Reduction& other) const { return op == other.op && premul == other.premul; }
};

struct Contribution {
  const void* in;
  std::size_t count;
  NcclType type;
  Reduction reduction;
};

// What each rank of a collective ("all_reduce", "reduce", …) gets to see; empty: nothing.
std::vector<std::vector<unsigned char>> results_of(const std::string& call,
                                                   const std::vector<Contribution>& ranks,
                                                   int root);

}  // namespace distrun::nccl::testing
