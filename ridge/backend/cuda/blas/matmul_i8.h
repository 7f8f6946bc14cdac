// Matrix products of bytes by cuBLASLt, which multiplies i8 by i8 alone, the rows of one matrix by
// the rows of another one, to sums in i32, and reads matrices whose sides are multiples of four:
//
//   sum = p - a_zero * columns_of_b - b_zero * rows_of_a + K * a_zero * b_zero     (modulo 2^32)
//
// p are its products, rows_of_a and columns_of_b the sums of a's rows and of b's columns. Of u8,
// 128 is taken away first, from its zero points, too; what is no multiple of four is padded with
// zeros. Loops around the product do that, and make the result of the sums (ProductI8::result_of).
// All of it is exact: the bits are those of the CPU.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/cuda/blas/problem.h"

namespace ridge::cuda {

/// Why a `matmul_i8` node is left to its plain form, as the end of a sentence about it; empty: the
/// library is asked for it.
std::string blas_i8_refusal(const Node& node);

/// Algorithms for a `matmul_i8` node ("cublaslt_i8_21_tile18"), the library's best guess first;
/// none for other nodes, where the node is refused, and where the library has none. Some versions
/// have none for few rows: then it is asked for more, whose products nobody reads ("..._rows32").
/// BlasError.
std::vector<BlasChoice> blas_i8_choices(const Blas& blas, const Node& node);

/// The plain ops of a choice, before and behind the product, as graphs of which each node needs a
/// kernel.
std::vector<Graph> blas_i8_forms(const Node& node, const BlasChoice& choice);

/// Makes the kernel of such a graph, which reads its inputs "0", "1", ... and writes its outputs
/// "0", "1", ..., none of which lies where an input does.
using MakeForm = std::function<std::unique_ptr<NodeKernel>(const Graph& form)>;

/// The kernel of a choice that blas_i8_choices() gave for this node. With `is_packed` it reads b as
/// blas_i8_packed() says. Nothing is allocated in a launch. BlasError.
std::unique_ptr<NodeKernel> make_blas_i8_kernel(std::shared_ptr<const Blas> blas,
                                                const Node& node,
                                                const BlasChoice& choice,
                                                const MakeForm& make,
                                                bool is_packed);

/// The operand b as the library reads it, with the sums of its columns behind it; none where each
/// item of a batch has its own b.
std::vector<PackedOperand> blas_i8_packed(const Node& node);

}  // namespace ridge::cuda
