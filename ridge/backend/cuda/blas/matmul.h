// Matrix products by cuBLASLt: its algorithms are choices of a node.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "ridge/backend/cuda/blas/problem.h"

namespace ridge::cuda {

/// Algorithms for a `matmul` node, or a `fused_matmul` whose loop is an epilogue of the library's
/// (epilogue.h), the library's best guess first; none for other nodes, and where the library
/// has none. All of them give the same bits in each run: where they split the depth,
/// parts are added up in order, in the type of the sums. With `round_to`, the factors are rounded
/// into the workspace first, as is a bias: the library reads it in the dtype of the result. With
/// `tf32` products are made in TF32. BlasError.
std::vector<BlasChoice> blas_choices(const Blas& blas, const Node& node);

/// The kernel of a choice that blas_choices() gave for this node; `make`
/// gives those of `cast` nodes. Nothing is allocated in a launch. BlasError.
std::unique_ptr<NodeKernel> make_blas_kernel(
    std::shared_ptr<const Blas> blas,
    const Node& node,
    const BlasChoice& choice,
    const std::function<std::unique_ptr<NodeKernel>(const Node&)>& make);

}  // namespace ridge::cuda
