// The plan of a batch norm node, shared by its launches and those of the ops that are fused with
// it.
#pragma once

#include <span>

#include "ridge/backend/cpu/isa/batch_norm_kernels.h"
#include "ridge/backend/cpu/workspace.h"
#include "ridge/graph/ops/batch_norm.h"

namespace ridge::cpu {

/// The steps of the instruction set in use.
const BatchNormKernels& batch_norm_kernels();

/// How the steps of isa/batch_norm_kernels.h are cut over x (..., C): a function of its type.
struct BatchNormPlan {
  /// `channels`: the dtype of gamma, beta and the statistics.
  BatchNormPlan(const TensorType& x, DType channels, double eps, NormActivation act);

  size_t workspace_bytes() const;
  /// Sizes, and what the steps need of the workspace: all else is still to be bound.
  BatchNormData carve(Workspace& space) const;
  /// All steps but the last, in parallel: what `write` needs lies in the table then.
  void sum(const BatchNormSteps& steps, const BatchNormData& bound) const;
  void run(const BatchNormSteps& steps, const BatchNormData& bound) const;

  size_t dtype;
  size_t activation;
  BatchNormData data{};  // sizes alone
  int64_t chunks;
  int64_t tiles;
  int64_t tile_grain;
  int64_t row_grain;
};

/// Binds {x, gamma, beta} and {mean, variance}.
void bind_forward(std::span<const void* const> inputs,
                  std::span<void* const> stats,
                  BatchNormData& data);
/// Binds {x, gamma, beta, mean, variance, dy} and {dgamma, dbeta}.
void bind_backward(std::span<const void* const> inputs,
                   std::span<void* const> gradients,
                   BatchNormData& data);

}  // namespace ridge::cpu
