// The nodes of the samples of an op, alone, with their operands and what the reference makes of
// them.
#pragma once

#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/support/op_audit.h"
#include "tests/support/scale.h"

namespace ridge::test {

struct SampleNode {
  std::string where;
  Graph lone;
  NamedTensors operands, want;
  const Node& node() const { return *lone.outputs().at(0).value.node; }
};

/// In one of the op's dtypes, in turn, and f32; in the short form of one in `every` samples without
/// f32, in the full form in all dtypes.
inline std::vector<SampleNode> sample_nodes(const std::string& op, size_t every = 1) {
  const auto ref = make_backend("ref");
  std::vector<DType> accepted;
  for (const DType dtype : kAllDTypes)
    if (registry().create(op)->traits().dtypes.has(dtype)) accepted.push_back(dtype);
  std::vector<SampleNode> nodes;
  size_t number = 0;
  const auto name = [](const Node& node, int result) {
    return fmt::format("{}.{}", node.id, result);
  };
  for (const OpSample& sample : all_samples()) {
    if (sample.op != op || !is_drawn(number++, every)) continue;
    for (size_t i = 0; i < accepted.size(); ++i) {
      const bool is_extra = accepted[i] == DType::kF32 ? is_short_scale() : !is_full_scale();
      if (is_extra && i != number % accepted.size()) continue;
      CaseBuilder builder(accepted[i], 17 + i);
      builder.finish(sample.build(builder));
      Graph open = builder.graph().clone();
      for (const auto& node : open.nodes())
        for (int k = 0; k < std::ssize(node->outputs); ++k)
          open.add_output(name(*node, k), {node.get(), k});
      const NamedTensors all = evaluate(open, *ref, builder.tensors());
      for (const auto& node : builder.graph().nodes()) {
        if (node->op->name() != op) continue;
        SampleNode& made = nodes.emplace_back(SampleNode{
            fmt::format("{} in {}: {}", sample.label, name_of(accepted[i]), print(*node)),
            lone_node(*node),
            {},
            {}});
        for (const Value& value : node->inputs)
          made.operands.emplace(fmt::format("{}", made.operands.size()),
                                all.at(name(*value.node, value.index)));
        for (int k = 0; k < std::ssize(node->outputs); ++k)
          made.want.emplace(fmt::format("{}", k), all.at(name(*node, k)));
      }
    }
  }
  return nodes;
}

}  // namespace ridge::test
