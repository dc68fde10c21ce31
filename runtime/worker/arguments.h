// From what a caller gave to a Call: what cannot be is refused here, in words, before anything is
// sent.  All throw DistArgumentError.
#pragma once

#include "runtime/worker/call.h"
#include "runtime/worker/point_to_point.h"
#include <distrun/process_group.h>

#include <span>

namespace distrun {

class Arguments {
 public:
  // Of the group: in ranks.
  Arguments(int rank, int size) : rank_(rank), size_(size) {}

  Call broadcast(const Tensor& data, int root) const;
  Call all_reduce(const Tensor& data, Reduction reduction) const;
  Call reduce(const Tensor& data, int root, Reduction reduction) const;
  Call all_gather_into_tensor(const Tensor& out, const ConstTensor& in) const;
  Call all_gather(std::span<const Tensor> outs, const ConstTensor& in) const;
  Call gather(const ConstTensor& in, std::span<const Tensor> outs, int root) const;
  Call scatter(const Tensor& out, std::span<const ConstTensor> ins, int root) const;
  Call reduce_scatter_tensor(const Tensor& out, const ConstTensor& in, Reduction reduction) const;
  Call reduce_scatter(const Tensor& out, std::span<const ConstTensor> ins,
                      Reduction reduction) const;
  Call all_to_all(std::span<const Tensor> outs, std::span<const ConstTensor> ins) const;
  Call all_to_all_single(const Tensor& out, const ConstTensor& in,
                         std::span<const std::size_t> out_splits,
                         std::span<const std::size_t> in_splits) const;
  P2PCall send(const ConstTensor& data, int to, int tag) const;
  P2PCall recv(const Tensor& data, std::optional<int> from, int tag) const;

 private:
  const int rank_;
  const int size_;
};

}  // namespace distrun
