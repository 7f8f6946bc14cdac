// The vector kernels of elementwise ops on a block of elements: what fused loops are made of.
#pragma once

#include <optional>

#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/graph/op.h"

namespace ridge::cpu {

/// One of the three is set, for AVX2 at [0] and AVX-512 at [1]. A result may be written over an
/// operand of the same element size.
struct BlockKernel {
  UnaryKernel unary[2] = {};
  BinaryKernel binary[2] = {};
  WhereKernel where[2] = {};
};

/// The kernel of an elementwise op whose first input is `input` and whose result is `output`;
/// nothing for ops and dtypes without one.
std::optional<BlockKernel> block_kernel(const Op& op, DType input, DType output);

/// Which of the elementwise ops with one input (gelu in both forms, but no cast), or with two, this
/// is.
std::optional<UnaryOp> unary_op(const Op& op);
std::optional<BinaryOp> binary_op(const Op& op);
/// True for an op that is made of many operations, such as exp or gelu, so that it costs more than
/// a store and a load.
bool is_function(UnaryOp op);

}  // namespace ridge::cpu
