// Several ops as one: a loop over the elements, or over rows of them, with a small program as its
// body.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/loop_role.h"

namespace ridge {

struct FusedBody;

/// The results of `body`, a graph in text form whose inputs and outputs are named "0", "1", ...
///
/// Without rows and columns the body holds elementwise ops on values of the shape of the results,
/// the domain, splat constants, broadcasts of inputs to the domain, and dropout. With rows = 1 it
/// may also reduce all `columns` elements of the domain to one. With rows and columns of 2 or more,
/// the domain is so many rows: the body may reduce each row (over the last axes), compute with the
/// values of the rows, broadcast them over their rows, pick an element of each row of an input,
/// mark one (one_hot), sum over all rows (the first axes), and reduce the values of the rows to one
/// element; of these last two the body can only make results.
///
/// The plain form is the body itself, node by node; a kernel must give the same bits.
class Fused final : public OpOf<Fused> {
 public:
  static constexpr OpTraits kTraits{.name = "fused",
                                    .min_inputs = 1,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kAnyDType,
                                    .op_class = OpClass::kReduction,
                                    .gradient = Gradient::kExpand};
  std::string body;
  int64_t rows = 0;
  int64_t columns = 0;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  bool may_overwrite(size_t result, size_t input) const override;
  void fields(FieldVisitor& v) override;

 private:
  friend const FusedBody& read_body(const Fused& op);
  /// The result of read_body is kept: plans ask for it again and again.
  mutable std::shared_ptr<const FusedBody> read_;
  /// Answers of may_overwrite, result by result, once it has been asked: plans ask often.
  mutable std::shared_ptr<const std::vector<bool>> overwrites_;
  mutable size_t input_count_ = 0;
};

/// A body read back: the graph, and what each of its nodes is to the loop.
struct FusedBody {
  std::string text;  ///< The text that was read.
  Graph graph;
  LoopDomain domain;
  std::vector<LoopRole> roles;  ///< By node.
  /// By node: how many reductions of rows lie one behind the other before its value is there.
  std::vector<int> levels;

  LoopRole role(const Node& node) const { return roles[static_cast<size_t>(node.id)]; }
  int level(const Node& node) const { return levels[static_cast<size_t>(node.id)]; }
};

/// Reads the op's body with its rows and columns as they are now; the result stays valid until they
/// change. UserError when the body is not one of those that Fused describes.
const FusedBody& read_body(const Fused& op);

/// Which operand the input `node` of a body stands for.
size_t input_number(const Node& node);

/// The f32 value that is rounded to 16 bits to make `result`; null where none is.
const Node* before_rounding(const Node& result);

/// The node of op fused that computes the outputs of `body` from `inputs`, over `domain` (with 0
/// columns: elementwise, or with reductions over all of its elements).
Node& fused(Graph& graph,
            const Graph& body,
            std::vector<Value> inputs,
            Site site,
            const LoopDomain& domain = {});

}  // namespace ridge
