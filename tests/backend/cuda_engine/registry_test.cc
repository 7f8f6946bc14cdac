// Every op for which the CUDA backend has a kernel, in each of its choices, against the reference;
// and the list of those for which it has none.
#include <set>

#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_kernels/sample_nodes.h"
#include "tests/backend/cuda_kernels/test_limits.h"

namespace ridge::test {
namespace {

// Ops that neither have a kernel nor a plain form that a pass could put in their place: programs
// that hold them do not run yet. The list only shrinks.
const std::set<std::string> kNotCovered = {};

// Adds the sources of the node's kernels and, where it has a plain form, those of the ops in that.
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
  const auto gpu = make_backend_cuda(), ref = make_backend("ref");
  std::vector<SampleNode> cases;
  for (const std::string& name : registry().names())
    if (name != "input")
      for (SampleNode& each : sample_nodes(name, 4)) cases.push_back(std::move(each));
  ASSERT_GT(cases.size(), is_short_scale() ? 70u : 150u);

  std::set<std::string> sources, not_covered;
  size_t covered = 0;
  for (const SampleNode& each : cases) {
    if (!gpu->candidates(each.node()).empty()) {
      add_sources(each.node(), sources);
      ++covered;
    } else if (!each.node().op->has_plain_form()) {
      not_covered.insert(std::string(each.node().op->name()));
    }
  }
  compile_together({sources.begin(), sources.end()});
  for (const SampleNode& each : cases) {
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
