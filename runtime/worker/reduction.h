// Element by element arithmetic of the reduce operations.
#pragma once

#include <distrun/process_group.h>

#include <cstddef>

namespace distrun {

// accumulator[i] = op(accumulator[i], more[i]); avg adds, and average() is called at the end.
// Integers wrap around.  REQUIRES: both aligned for `dtype`.
void combine(DType dtype, ReduceOp op, void* accumulator, const void* more, std::size_t count);

// Divides by the number of ranks if the operation is avg.
void finish(DType dtype, ReduceOp op, void* accumulator, std::size_t count, int ranks);

}  // namespace distrun
