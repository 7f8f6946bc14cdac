// Loops by the device's approximations, on a simulated GPU: which nodes offer them, and when the
// tuner may take one.
#include "ridge/compile/pipeline.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/tuner.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"

namespace ridge::test {
namespace {

class CudaApprox : public SimulatedGpu {};

TEST_F(CudaApprox, IsOfferedBehindTheKernelOfTheCpusBits) {
  const auto gpu = make_backend_cuda();
  Graph graph("softmax");
  graph.add_output("y", softmax(input(graph, "x", {DType::kF32, {20, 40}})));
  run_pipeline(graph, *gpu, {});
  const Node& loop = *graph.outputs()[0].value.node;
  ASSERT_TRUE(loop.is<Fused>());
  const auto choices = gpu->candidates(loop);
  EXPECT_EQ(names_of(*gpu, loop), (Names{"printed", "printed_approx", "expanded"}));
  EXPECT_NE(choices[0].bits, choices[1].bits);
  Graph single("single");
  const Value x = input(single, "x", {DType::kF32, {20, 40}});
  EXPECT_EQ(names_of(*gpu, *exp(x).node), (Names{"printed", "printed_approx"}));
  EXPECT_EQ(names_of(*gpu, *add(x, x).node), (Names{"printed"}));

  // By default nothing is timed; of any bits it is, for it is right.
  const auto ref = make_backend("ref");
  ChoiceCache cache({}, "a machine");
  Tuner tuner(*gpu, *ref, cache);
  EXPECT_EQ(tuner.choose(loop, choices), 0u);
  EXPECT_EQ(tuner.timed(), 0u);
  EXPECT_LE(tuner.choose(loop, choices, KernelRange::kAnyBits), 1u);
  const NodeTimes& times = *tuner.times(loop, KernelRange::kAnyBits);
  EXPECT_EQ(times.candidates[1].note, "");
  EXPECT_GT(times.candidates[1].seconds, 0);
  EXPECT_EQ(times.candidates[2].note, "op by op");
}

}  // namespace
}  // namespace ridge::test
