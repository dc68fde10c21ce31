// Element-wise reduction of buffers, for every type of element.
//
//   prepare(own data) -> combine(accumulator, another rank's data) ... -> finish(accumulator)
//
// Integers wrap.  16-bit floats are added up as float32 and rounded once for each combine().  bool:
// sum and max are "any", product and min are "all".  NaN: min and max give NaN if either is.
#pragma once

#include <distrun/process_group.h>

#include <cstddef>
#include <span>
#include <string>

namespace distrun {

// Empty: there is such a reduction.  Else a sentence that says why not.
std::string why_no_reduction(DType dtype, ReduceOp op);

// REQUIRES of all below: why_no_reduction() is empty; buffers are aligned for `dtype`.

// What this rank puts in: premul_sum multiplies it by `factor`.  `to` may be `from`.
void prepare(DType dtype, ReduceOp op, double factor, void* to, const void* from,
             std::size_t count);
// accumulator[i] = accumulator[i] op more[i]
void combine(DType dtype, ReduceOp op, void* accumulator, const void* more, std::size_t count);
// to[i] = inputs[0][i] op inputs[1][i] op …, in that order, in one pass; 16-bit floats are rounded
// once.  `to` may be one of the inputs.
void combine_all(DType dtype, ReduceOp op, void* to, std::span<const void* const> inputs,
                 std::size_t count);
// The result of `ranks` inputs: avg divides.
void finish(DType dtype, ReduceOp op, void* accumulator, std::size_t count, int ranks);

}  // namespace distrun
