// From operations to NCCL's calls: checks all arguments, and says which calls carry them out.
//
//   all_to_all, gather, scatter          sends and receives in one group
//   all_gather to a list                 a broadcast from each rank, in one group
//   reduce_scatter from a list           a reduce to each rank, in one group
//   barrier                              an all_reduce of one element
//
// NCCL 2.28 has calls for an all_to_all, gather and scatter of equal parts.  Whether they meet a
// rank that has other parts is not documented; sends and receives always do.
//
// Knows tensors and ranks only: no streams, no communicators, no state.
#pragma once

#include "runtime/nccl/core/support.h"
#include "runtime/nccl/core/watch.h"
#include <distrun/backend_abi.h>

#include <cstddef>
#include <span>
#include <vector>

namespace distrun::nccl {

enum class Call : std::uint8_t {
  all_reduce,
  reduce,
  broadcast,
  all_gather,
  reduce_scatter,
  send,
  recv,
  copy,  // on this device, of `count` bytes; before all others
};

struct Command {
  Call call = Call::copy;
  const void* in = nullptr;
  void* out = nullptr;
  std::size_t count = 0;  // as NCCL counts for this call; never 0
  NcclType type = NcclType::uint8;
  NcclOp op = NcclOp::sum;
  int peer = -1;        // or root
  bool premul = false;  // op is to be made of…
  double factor = 0;    // …this one, or…
  const void* factor_on_device = nullptr;
  bool on_scratch = false;  // in and out are the communicator's own element
};

struct Plan {
  Label label;      // without the sequence number
  int device = -1;  // of the tensors; -1: there are none
  bool point_to_point = false;
  bool barrier = false;
  std::vector<Command> commands;
};

struct Place {
  int rank = 0;
  int world_size = 1;
};

// Throws Failed (argument, unsupported).  REQUIRES: at least one operation.
Plan make_plan(std::span<const drb_op* const> ops, const Place& place);

}  // namespace distrun::nccl
