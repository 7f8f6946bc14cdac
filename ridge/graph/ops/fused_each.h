// A fused loop for each tensor of a list: the update of all parameters, or the sums of squares of
// all gradients.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/fused.h"

namespace ridge {

struct EachBody;

/// Runs `body` for each of several tensors of any shapes.
///
/// The body is that of an elementwise Fused, which may sum all elements or take their maximum,
/// written for tensors of shape [1]. Its first inputs, of shape [], are shared by all tensors.
/// Operands are the shared ones, then those of the first tensor, those of the second, and so on; of
/// one tensor they have one shape, of two elements or more. Results are those of the first tensor,
/// then those of the second. No tensor's body reads a result of another.
///
/// The plain form is that of a fused node for each tensor; a kernel must give the same bits.
class FusedEach final : public OpOf<FusedEach> {
 public:
  static constexpr OpTraits kTraits{.name = "fused_each",
                                    .min_inputs = 1,
                                    .max_inputs = 1 << 16,
                                    .dtypes = kAnyDType,
                                    .op_class = OpClass::kReduction,
                                    .gradient = Gradient::kExpand};
  std::string body;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t result, size_t input) const override;
  void fields(FieldVisitor& v) override { v.visit("body", body); }

 private:
  friend const EachBody& read_body(const FusedEach& op);
  mutable std::shared_ptr<const EachBody> read_;  ///< Result of read_body: plans ask often.
};

/// A body read back.
struct EachBody {
  std::string text;  ///< The text that was read.
  Graph graph;
  size_t shared = 0, own = 0, results = 0;  ///< Inputs for all, inputs and results of a tensor.

  /// How many tensors so many operands belong to.
  size_t tensors(size_t operands) const { return (operands - shared) / own; }
  /// Place among the operands of the node of input `i` of the body, for that tensor.
  size_t operand(size_t tensor, size_t i) const { return i < shared ? i : tensor * own + i; }
};

/// Reads the op's body as it is now; the result stays valid until the body changes. UserError when
/// the body is not one of those that FusedEach describes.
const EachBody& read_body(const FusedEach& op);

/// The body as the fused op of one tensor of that shape.
std::shared_ptr<const Fused> fused_of(const FusedEach& op, const Shape& shape);

/// A node as one tensor's part of a FusedEach.
struct EachPart {
  std::string body;
  std::vector<Value> shared, own;  ///< Operands of the node.
};

/// The part of a fused node without rows, or of an elementwise one; nothing where the node is of
/// another kind, is random, or reads a value that is neither of its shape nor a scalar.
std::optional<EachPart> part_of_each(const Node& node);

/// The node that is all of `parts`, which have one body and the same shared operands (values of
/// `graph`).
Node& fused_each(Graph& graph, std::span<const EachPart> parts, Site site);

}  // namespace ridge
