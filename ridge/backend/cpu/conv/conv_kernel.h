// A convolution that is made ready, alone or with a loop over its results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/host.h"
#include "ridge/base/function_ref.h"

namespace ridge::cpu {

/// Called with ranges of the elements of a result once they are final, from any thread. All of them
/// make up the result.
using FinishRange = FunctionRef<void(int64_t begin, int64_t end)>;

/// Calls it with the rows of a block of a matrix that begins at element `first` and has rows of
/// `row` elements.
void finish_rows(const FinishRange& finish, const GemmBlock& block, int64_t first, int64_t row);

struct ConvKernel {
  /// Inputs and result are those of conv2d; `finish` may be null.
  std::function<void(const KernelArgs& args, const FinishRange* finish)> run;
  size_t workspace_bytes = 0;
};

/// The kernel without anything behind it.
std::unique_ptr<HostKernel> make_alone(ConvKernel kernel);

/// A choice of conv2d; functions are of a node of that op.
struct ConvChoice {
  Choice choice;
  ConvKernel (*make)(const Node& conv);
  bool (*accepts)(const Node& conv) = nullptr;
  std::vector<PackedOperand> (*packed_operands)(const Node& conv) = nullptr;
  ConvKernel (*make_packed)(const Node& conv) = nullptr;
};

/// Adds it to conv2d and to fused_conv2d. The loop of that runs over each range of the
/// convolution's result, in place, while the caches hold it.
void add_convolution(KernelTable& table, const ConvChoice& choice);

}  // namespace ridge::cpu
