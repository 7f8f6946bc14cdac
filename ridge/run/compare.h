// The tolerance table, and comparisons that use it: for tests and for `--verify`.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/op.h"
#include "ridge/run/evaluate.h"

namespace ridge {

/// Largest allowed error of one op against the reference, relative to the larger of the element's
/// magnitude, the tensor's mean magnitude and, of f16, the smallest normal number. 0 asks for equal
/// values. A GPU may use all of it: its tensor cores cut sums in f32 off towards zero, which over K
/// = 65536 terms of one sign is some 2e-4, always to the same side; and a NaN of 16 bits is the
/// canonical one there, whatever its bits were (bit_difference() takes NaNs for equal).
double tolerance(DType dtype, OpClass op_class);
/// The tolerance of a node's result of `dtype`: wider for a product in TF32, and where a loop reads
/// a product of 16 bits.
double tolerance(const Node& node, DType dtype);

/// Empty when every element of `got` is within `relative` of `want` (NaN equals NaN, infinities
/// equal themselves); else a line that names the worst element. `magnitude`, where given, holds for
/// each element the sum of the magnitudes of its terms: what a sum that cancels is measured by.
std::string difference(const Tensor& got,
                       const Tensor& want,
                       double relative,
                       const Tensor* magnitude = nullptr);

/// Empty when both hold the same names, types and bytes; else a line that names the first that
/// differ. NaNs are equal whatever their payload and sign.
std::string bit_difference(const NamedTensors& a, const NamedTensors& b);

/// Whether results are sums of terms, each of them linear in the float operands: what cancels is
/// then measured by the magnitudes of the terms, the results for the magnitudes of the operands.
bool sums_terms(const Op& op);

/// A node with nothing around it: inputs "0", "1", ... of the types of its operands, outputs "0",
/// "1", ...
Graph lone_node(const Node& node);

/// How far the plain form of the node of `lone`, run op by op on `backend`, is from `want`, as
/// difference() measures it: what rounding does to the formula, whoever computes it. 0 where there
/// is no plain form.
double plain_error(const Graph& lone,
                   const NamedTensors& operands,
                   const NamedTensors& want,
                   Backend& backend);

/// How the line of a choice begins whose kernel threw a UserError instead of running.
inline constexpr std::string_view kCannotRun = "cannot run: ";

/// One line for each of the backend's choices for the node of `lone`: empty when its results agree
/// with `want` by the tolerance table, or, for an op made of several, err no more than twice what
/// its plain form does when `backend` runs that op by op, or are what operands within the tolerance
/// would give; else where they differ. `want` is what `reference` gives for `operands`.
std::vector<std::string> choice_differences(const Graph& lone,
                                            const NamedTensors& operands,
                                            const NamedTensors& want,
                                            Backend& backend,
                                            Backend& reference);

/// Runs every node of `graph` on `backend` with the inputs that it has in an evaluation on
/// `reference`, in each of the backend's choices, and compares the results by the tolerance table.
/// Empty when all agree; else a line with the node.
std::string node_differences(const Graph& graph,
                             const NamedTensors& inputs,
                             Backend& backend,
                             Backend& reference);

}  // namespace ridge
