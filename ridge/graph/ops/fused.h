// Several elementwise ops as one: a loop over the elements with a small program as its body.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// The results of `body`, a graph in text form whose inputs and outputs are named "0", "1", ... All
/// results have one shape, the domain. A node of the body is an input, a splat constant, a
/// broadcast of an input to the domain, or an elementwise op of domain shape: element i of each
/// result depends on element i of the inputs of domain shape. The plain form is the body itself,
/// node by node, so a kernel that runs it block by block gives the same bits.
class Fused final : public OpOf<Fused> {
 public:
  static constexpr OpTraits kTraits{.name = "fused",
                                    .min_inputs = 1,
                                    .max_inputs = 1 << 10,
                                    .dtypes = kAnyDType,
                                    .op_class = OpClass::kTranscendental,
                                    .gradient = Gradient::kExpand,
                                    .elementwise = true};
  std::string body;

  std::vector<TensorType> infer(std::span<const TensorType> inputs) const override;
  std::vector<Value> expand(std::span<const Value> inputs) const override;
  Cost cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const override;
  std::vector<BatchFlow> batch_flow(const BatchFlowContext& c) const override;
  void fields(FieldVisitor& v) override { v.visit("body", body); }
};

/// True for a node that a fused body may hold: an elementwise op of one result.
bool is_fusible(const Node& node);

/// The node of op fused that computes the outputs of `body` from `inputs`.
Node& fused(Graph& graph, const Graph& body, std::vector<Value> inputs, Site site);

}  // namespace ridge
