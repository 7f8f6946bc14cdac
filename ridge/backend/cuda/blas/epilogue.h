// Which loops behind a product cuBLASLt does itself, as epilogues: found by what a body computes,
// not by how it is written.
//
// The gradient of a bias stays a loop, though the library has an epilogue for it (BGRADA): that
// would save 0.07 ms a layer of GPT-2, less than a product of so few tiles loses without split
// depth. The library makes no handle without a GPU, so only a GPU shows what it proposes for an
// epilogue.
#pragma once

#include <optional>
#include <string>

#include "ridge/backend/cuda/blas/cublaslt_api.h"
#include "ridge/graph/graph.h"

namespace ridge::cuda {

/// What is done with a product before it is rounded to 16 bits and written.
struct BlasEpilogue {
  bool gelu = false;    ///< By tanh: the library has no other.
  bool slope = false;   ///< Times the derivative of GELU, by tanh, of the operand `aux`.
  int bias = -1;        ///< The node's operand that is added to each row, in f32; -1: none.
  int aux = -1;         ///< Of a slope: the node's operand.
  int result = 0;       ///< The node's result that is the library's D.
  int aux_result = -1;  ///< The node's result that is what GELU reads; -1: it is not written.

  BlasEpilogueKind kind() const;
  /// "gelu_aux_bias"; a part of names of choices.
  std::string name() const;
};

/// The epilogue of a `fused_matmul` node; nothing where the library cannot do what its loop does.
std::optional<BlasEpilogue> blas_epilogue(const Node& node);

}  // namespace ridge::cuda
