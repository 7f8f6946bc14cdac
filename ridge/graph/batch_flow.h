// Finds the axis of each tensor on which the samples of a batch lie, by dataflow through a graph. A
// graph can be run in micro-batches when every output is separable: split by sample, a sum over
// samples, or independent of the batch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/base/type.h"

namespace ridge {

class Graph;
struct Node;

struct BatchFlow {
  enum class Kind : uint8_t {
    kNone,   ///< Does not depend on any sample.
    kSplit,  ///< Sample i owns the i-th of B equal parts of `axis` (the batch is its outer factor).
    kSum,    ///< A sum over samples of terms that depend on one sample each.
    kMixed,  ///< Anything else: `reason` says which node mixed the samples and how.
  };
  Kind kind = Kind::kNone;
  int64_t axis = 0;
  /// For kNone: bit a is set when the value is the same all along axis a (a broadcast). Only then
  /// may it meet a batch on that axis: anything else would be a row per sample.
  uint32_t uniform = 0;
  std::string reason;

  static BatchFlow none(uint32_t uniform_axes = 0) { return {Kind::kNone, 0, uniform_axes, {}}; }
  static BatchFlow split(int64_t axis) { return {Kind::kSplit, axis, 0, {}}; }
  static BatchFlow sum() { return {Kind::kSum, 0, 0, {}}; }
  static BatchFlow mixed(std::string why) { return {Kind::kMixed, 0, 0, std::move(why)}; }

  bool is_none() const { return kind == Kind::kNone; }
  bool is_split() const { return kind == Kind::kSplit; }
  bool is_split_on(int64_t a) const { return is_split() && axis == a; }
};

/// The arguments of an op's batch rule.
struct BatchFlowContext {
  std::span<const BatchFlow> flows;  ///< One an input: none or split.
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
  int64_t batch;  ///< Samples in the batch.
};

/// The flow of a result whose element i depends on element i of each input.
BatchFlow merge_elementwise(const BatchFlowContext& context);

struct BatchReport {
  /// One a node and output, by node id.
  std::vector<std::vector<BatchFlow>> flows;
  /// True when no output of the graph is mixed.
  bool separable = true;
  /// Empty when separable; else the first output that is not, and the node that mixed its samples.
  std::string reason;
};

/// Follows the batch from the inputs that carry one (all of one size, else UserError) to the
/// outputs of `graph`. A graph without a batch input is separable by definition. One graph alone
/// cannot show all (see below): a constant made from the batch size goes unnoticed.
BatchReport analyze_batch(const Graph& graph);

/// The same for the graph that `build` makes for `batch` samples, and also for twice as many: the
/// values that change with them are those that depend on the batch size.
BatchReport analyze_batch(FunctionRef<Graph(int64_t)> build, int64_t batch);

}  // namespace ridge
