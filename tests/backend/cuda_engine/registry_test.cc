// Every op for which the CUDA backend has a kernel, in each of its choices, against the reference;
// and the list of those for which it has none.
#include "ridge/graph/ops/registry.h"

#include <map>
#include <set>

#include "ridge/graph/ops/source.h"
#include "ridge/graph/signature.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/op_audit.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// Ops that neither have a kernel nor a plain form that a pass could put in their place: programs
// that hold them do not run yet. The list only shrinks.
const std::set<std::string> kNotCovered = {};

// f32 and one more dtype in turn; in the full form all that the op accepts.
std::vector<DType> dtypes_of(const OpTraits& traits, size_t turn) {
  std::vector<DType> accepted;
  for (const DType dtype : kAllDTypes)
    if (traits.dtypes.has(dtype)) accepted.push_back(dtype);
  if (is_full_scale()) return accepted;
  if (traits.dtypes.has(DType::kF32)) return {DType::kF32};
  return {accepted[turn % accepted.size()]};
}

// A node with its operands and what the reference makes of them.
struct NodeCase {
  std::string where;
  Graph lone;
  NamedTensors operands, want;
  const Node& node() const { return *lone.outputs().at(0).value.node; }
};

void add_cases(const OpSample& sample, DType dtype, Backend& ref, std::vector<NodeCase>& cases) {
  CaseBuilder builder(dtype, 17 + static_cast<uint64_t>(dtype));
  builder.finish(sample.build(builder));
  Graph open = builder.graph().clone();
  const auto name = [](const Node& node, int result) {
    return fmt::format("{}.{}", node.id, result);
  };
  for (const auto& node : open.nodes())
    for (size_t i = 0; i < node->outputs.size(); ++i)
      open.add_output(name(*node, static_cast<int>(i)), {node.get(), static_cast<int>(i)});
  const NamedTensors all = evaluate(open, ref, builder.tensors());
  for (const auto& node : builder.graph().nodes()) {
    if (node->op->name() != sample.op || node->is<Input>()) continue;
    NodeCase made{
        .where = fmt::format(
            "{}, sample '{}' in {}: {}", sample.op, sample.label, name_of(dtype), print(*node)),
        .lone = lone_node(*node),
        .operands = {},
        .want = {}};
    for (const Value& value : node->inputs)
      made.operands.emplace(fmt::format("{}", made.operands.size()),
                            all.at(name(*value.node, value.index)));
    for (size_t i = 0; i < node->outputs.size(); ++i)
      made.want.emplace(fmt::format("{}", i), all.at(name(*node, static_cast<int>(i))));
    cases.push_back(std::move(made));
  }
}

// Of the node and, where it has a plain form, of the ops in that.
void add_sources(const Node& node, std::set<std::string>& sources) {
  for (const cuda::Printing& printing : {cuda::print_kernel(node, kH200),
                                         cuda::print_mma_kernel(node, kH200),
                                         cuda::print_approx_kernel(node, kH200)})
    if (printing.kernel) sources.insert(printing.kernel->source);
  Graph plain("plain");
  std::vector<Value> operands;
  for (const Value& value : node.inputs)
    operands.push_back(input(plain, fmt::format("{}", operands.size()), value.type()));
  if (node.op->expand(operands).empty()) return;
  for (const auto& each : plain.nodes())
    if (!each->is<Input>()) add_sources(*each, sources);
}

class CudaRegistry : public SimulatedGpu {};

TEST_F(CudaRegistry, EveryOpAgreesWithRefOrIsListed) {
  fake_.set_schedule(Schedule::kAtLast);
  const auto gpu = make_backend_cuda(), ref = make_backend("ref");
  std::vector<NodeCase> cases;
  size_t turn = 0;
  std::map<std::string, size_t> samples;  // of each op
  for (const OpSample& sample : all_samples()) {
    if (!is_drawn(samples[sample.op]++, 4)) continue;
    for (const DType dtype : dtypes_of(registry().create(sample.op)->traits(), turn++))
      add_cases(sample, dtype, *ref, cases);
  }
  ASSERT_GT(cases.size(), is_short_scale() ? 70u : 150u);

  std::set<std::string> sources, not_covered;
  size_t covered = 0;
  for (const NodeCase& each : cases) {
    if (!gpu->candidates(each.node()).empty()) {
      add_sources(each.node(), sources);
      ++covered;
    } else if (!each.node().op->has_plain_form()) {
      not_covered.insert(std::string(each.node().op->name()));
    }
  }
  compile_together({sources.begin(), sources.end()});
  for (const NodeCase& each : cases) {
    const auto choices = gpu->candidates(each.node());
    const auto lines = choice_differences(each.lone, each.operands, each.want, *gpu, *ref);
    for (size_t i = 0; i < lines.size(); ++i)
      EXPECT_EQ(lines[i], "") << "choice '" << choices[i].name << "' of " << each.where;
  }
  EXPECT_EQ(not_covered, kNotCovered);
  std::printf("%zu of %zu nodes have kernels, %zu of them printed\n",
              covered,
              cases.size(),
              sources.size());
}

}  // namespace
}  // namespace ridge::test
