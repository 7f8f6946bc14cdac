// Programs on a simulated GPU: the CPU's bits, in any order of work that streams allow; steady
// steps; wrong data.
#include "ridge/base/parallel.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/backend/cuda_engine/small_program.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr int64_t kSteps = 6;

class CudaProgram : public SimulatedGpu {
 protected:
  static SmallRun run_on_gpu() {
    const auto gpu = make_backend_cuda();
    return SmallTraining(*gpu).run(kSteps);
  }
  static SmallRun run_on_cpu() {
    const auto cpu = make_backend("cpu");
    return SmallTraining(*cpu).run(kSteps);
  }
  static void expect_same(const SmallRun& got, const SmallRun& want) {
    EXPECT_EQ(got.losses, want.losses);
    EXPECT_EQ(got.norms, want.norms);
    EXPECT_EQ(bit_difference(got.state, want.state), "");
  }
};

TEST_F(CudaProgram, TrainsWithTheBitsOfTheCpuInAnyOrderThatStreamsAllow) {
  const SmallRun want = run_on_cpu();
  ASSERT_EQ(want.losses.size(), 3u);
  EXPECT_NE(want.losses[2], want.losses[0]);
  for (const Schedule schedule : {Schedule::kAtLast, Schedule::kAtOnce}) {
    fake_.reset();
    fake_.set_schedule(schedule);
    expect_same(run_on_gpu(), want);
    expect_clean();
  }
  for (int seed = 1; seed <= cases(6); ++seed) {
    SCOPED_TRACE(seed);
    fake_.reset();
    fake_.set_schedule(Schedule::kRandom, static_cast<uint64_t>(seed));
    expect_same(run_on_gpu(), want);
    expect_clean();
  }
}

TEST_F(CudaProgram, ASteadyStepNeitherAllocatesNorWaits) {
  fake_.set_schedule(Schedule::kAtOnce);
  const auto gpu = make_backend_cuda();
  SmallTraining training(*gpu);
  SmallRun run;
  // Entries are recorded in their second run.
  for (int64_t step = 0; step < 2; ++step) training.queue_step(step);
  training.read(run);
  fake_.clear_log();
  for (int64_t step = 2; step < 40; ++step) training.queue_step(step);
  const std::vector<std::string> allowed = {"cuMemcpyHtoDAsync_v2",
                                            "cuMemcpyDtoDAsync_v2",
                                            "cuMemsetD8Async",
                                            "cuEventRecord",
                                            "cuEventQuery",
                                            "cuStreamWaitEvent",
                                            "cuEventSynchronize",
                                            "cuGraphLaunch"};
  EXPECT_EQ(lines(allowed).size(), fake_.log().size());
  for (const std::string& line : fake_.log()) EXPECT_THAT(line, lacks("pageable"));
  EXPECT_EQ(lines({"cuGraphLaunch"}).size(), 38u * 3);
  // A step that is read waits once, for either stream.
  fake_.clear_log();
  training.queue_step(40);
  training.read(run);
  EXPECT_EQ(lines({"cuStreamSynchronize"}).size(), 2u);
  EXPECT_EQ(lines({"cuMemAlloc_v2", "cuMemHostAlloc", "cuCtxSynchronize"}),
            std::vector<std::string>{});
}

TEST_F(CudaProgram, TheMemoryOfAPlanIsWhatItTakes) {
  const auto gpu = make_backend_cuda();
  int64_t before = 0, planned = 0;
  ProgramOptions options;
  options.before_memory = [&](const Plan& plan) {
    before = gpu->memory_in_use();
    planned = plan.total_bytes();
  };
  const Program program(small_program(), *gpu, options);
  EXPECT_EQ(gpu->memory_in_use() - before, planned);
}

TEST_F(CudaProgram, RecordingsTakeMemoryBesideThePlan) {
  for (const Capture capture : {Capture::kOff, Capture::kAuto}) {
    const auto gpu = make_backend_cuda();
    int64_t before = 0;
    ProgramOptions options;
    options.capture = capture;
    options.before_memory = [&](const Plan&) { before = gpu->memory_in_use(); };
    SmallTraining training(*gpu, options);
    training.run(kSteps);
    const Program& program = training.program();
    EXPECT_EQ(program.recorded_bytes() > 0, capture == Capture::kAuto);
    EXPECT_EQ(gpu->memory_in_use() - before,
              program.plan().total_bytes() + program.recorded_bytes());
  }
}

TEST_F(CudaProgram, ARefusedCaptureIsKnownAndTheRunGoesOn) {
  const SmallRun want = run_on_cpu();
  const auto gpu = make_backend_cuda();
  SmallTraining training(*gpu);
  fake_.fail("cuStreamEndCapture", 1, 901);
  expect_same(training.run(kSteps), want);
  const Program& program = training.program();
  const size_t micro = program.entry("micro"), apply = program.entry("apply");
  EXPECT_FALSE(program.is_recorded(micro));
  EXPECT_THAT(program.recording_refusal(micro), has("cuStreamEndCapture"));
  EXPECT_TRUE(program.is_recorded(apply));
  EXPECT_EQ(program.recording_refusal(apply), "");
  EXPECT_EQ(lines({"cuStreamBeginCapture_v2"}).size(), 2u);
}

TEST_F(CudaProgram, KernelsOfAllEntriesAreCompiledTogether) {
  FakeNvrtcControl& control = compiler();
  const int threads = num_threads();
  control.compilations = 0, control.most_at_once = 0, control.meeting = 3;
  control.makes_empty = true;
  set_num_threads(3);
  const auto gpu = make_backend_cuda();
  const Program program(small_program(), *gpu);
  EXPECT_EQ(control.most_at_once, 3);
  EXPECT_EQ(control.compilations, static_cast<int>(lines({"cuModuleLoadDataEx"}).size()));
  set_num_threads(threads);
  control.meeting = 0;
  control.makes_empty = false;
}

TEST_F(CudaProgram, AnIndexOutOfRangeIsToldWithItsSite) {
  const auto gpu = make_backend_cuda();
  SmallTraining training(*gpu);
  training.set_wrong_step(1);
  SmallRun run;
  training.queue_step(0);
  training.read(run);
  training.queue_step(1);
  // Queued behind it before anybody looked.
  training.queue_step(2);
  const std::string message = user_error([&] { training.read(run); });
  EXPECT_NE(message.find("[pick] index -3 at 7 is out of range; expected 0 to 4, at site '"),
            std::string::npos)
      << message;
  // Told once; what is right runs again.
  training.queue_step(3);
  training.read(run);
}

TEST_F(CudaProgram, PlainNodesTellASiteOnce) {
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {2, 3}});
  const Value i = input(graph, "i", {DType::kI64, {2}});
  graph.add_output("y", pick(x, i));
  Tensor numbers({DType::kF32, {2, 3}}), indices({DType::kI64, {2}});
  indices.set(1, 3);
  const std::string message =
      user_error([&] { evaluate(graph, *gpu, {{"x", numbers}, {"i", indices}}); });
  EXPECT_EQ(message,
            "[pick] index 3 at 1 is out of range; expected 0 to 2, at site '" +
                graph.nodes().back()->site.name + "'");
}

TEST_F(CudaProgram, LargeTensorsGoThroughThePinnedSlots) {
  const auto gpu = make_backend_cuda();
  constexpr int64_t kElements = (int64_t{20} << 20) / 4 + 5;  // more than there are slots
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {kElements}});
  graph.add_output("x", x);
  Tensor numbers({DType::kF32, {kElements}});
  for (int64_t i = 0; i < kElements; ++i)
    numbers.span<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 8191);
  const NamedTensors results = evaluate(graph, *gpu, {{"x", numbers}});
  EXPECT_TRUE(results.at("x").same_bits(numbers));
}

TEST_F(CudaProgram, PageLockedMemoryIsCopiedWhereItLies) {
  const auto gpu = make_backend_cuda();
  constexpr size_t kBytes = size_t{3} << 20;
  const HostMemory from(*gpu, kBytes), to(*gpu, kBytes);
  const DeviceMemory device(*gpu, kBytes);
  for (size_t i = 0; i < kBytes; ++i) from.get()[i] = static_cast<std::byte>(i * 7 + i / 251);
  const auto stream = gpu->make_stream();
  fake_.clear_log();
  gpu->copy_to_device(*stream, device.get(), from.get(), kBytes);
  gpu->copy_to_host(*stream, to.get(), device.get(), kBytes);
  EXPECT_EQ(fake_.log().size(), 2u);
  stream->synchronize();
  EXPECT_EQ(std::memcmp(to.get(), from.get(), kBytes), 0);
}

TEST_F(CudaProgram, NoMemoryForThePlanIsOneClearError) {
  fake_.set_memory(64 << 10);
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {1 << 20}});
  graph.add_output("y", neg(x));
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  const std::string message = user_error([&] { Program(std::move(graphs), *gpu); });
  EXPECT_THAT(message, has("cuMemAlloc_v2(", "bytes are free", "train.batch"));
}

TEST_F(CudaProgram, AModuleIsLoadedOnceForNodesThatAreAlike) {
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {64}});
  for (const char* name : {"a", "b", "c"}) {
    const SiteScope scope(graph, name);
    graph.add_output(name, neg(x));
  }
  ProgramGraphs graphs;
  graphs.entries.push_back(std::move(graph));
  ProgramOptions options;
  options.passes.off = {"all"};
  const Program program(std::move(graphs), *gpu, options);
  EXPECT_EQ(lines({"cuModuleLoadDataEx"}).size(), 1u);
  EXPECT_EQ(lines({"cuModuleUnload"}).size(), 0u);
}

TEST_F(CudaProgram, CalibrateMeasuresWhatHasKernels) {
  fake_.set_memory(64 << 20);
  const auto gpu = make_backend_cuda();
  const Calibration measured = gpu->calibrate();
  EXPECT_GT(measured.copy_bytes_per_s, 0);
  EXPECT_GT(measured.launch_s, 0);
  EXPECT_GT(measured.pinned.to_device, 0);
  EXPECT_GT(measured.pageable.to_host, 0);
  EXPECT_GT(measured.graph_node_s, 0);
  EXPECT_TRUE(measured.flops_per_s.contains(DType::kF32));
  for (const auto& [dtype, rate] : measured.flops_per_s) EXPECT_GT(rate, 0) << name_of(dtype);
}

TEST_F(CudaProgram, TheHardwareIsNamed) {
  EXPECT_EQ(make_backend_cuda()->gpu_uuid(), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe00");
  EXPECT_EQ(make_backend_cuda()->hardware(),
            "NVIDIA Fake 9000, sm_90, driver for CUDA 13.2, no cuBLASLt");
}

}  // namespace
}  // namespace ridge::test
