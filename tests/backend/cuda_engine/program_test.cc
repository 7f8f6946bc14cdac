// Programs on a simulated GPU: the CPU's bits, in any order of work that streams allow; steady
// steps; wrong data.
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda_engine/simulated_gpu.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/own_program.h"
#include "tests/support/scale.h"
#include "tests/support/small_training.h"

namespace ridge::test {
namespace {

class CudaProgram : public SimulatedGpu {};

TEST_F(CudaProgram, TrainsWithTheBitsOfTheCpuInAnyOrderThatStreamsAllow) {
  const Seen wanted = run_on(*make_backend("cpu"));
  for (int seed = -1; seed <= cases(6); ++seed) {
    SCOPED_TRACE(seed);
    fake_.reset();
    fake_.set_schedule(seed < 0    ? Schedule::kAtLast
                       : seed == 0 ? Schedule::kAtOnce
                                   : Schedule::kRandom,
                       static_cast<uint64_t>(seed));
    EXPECT_TRUE(run_on(*make_backend_cuda()) == wanted);
    expect_clean();
  }
}

TEST_F(CudaProgram, KernelsOfAllEntriesAreCompiledTogether) {
  FakeNvrtcControl& control = compiler();
  const int threads = num_threads();
  control.compilations = 0, control.most_at_once = 0, control.meeting = 3;
  control.makes_empty = true;
  set_num_threads(3);
  const auto gpu = make_backend_cuda();
  const OwnProgram program(small_training(), *gpu);
  EXPECT_EQ(control.most_at_once, 3);
  EXPECT_EQ(control.compilations, static_cast<int>(lines({"cuModuleLoadDataEx"}).size()));
  set_num_threads(threads);
  control.meeting = 0;
  control.makes_empty = false;
}

TEST_F(CudaProgram, AnIndexOutOfRangeIsToldWithItsSite) {
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {2, 3}});
  const Value i = input(graph, "i", {DType::kI64, {2}});
  graph.add_output("y", pick(x, i));
  const std::string message =
      fmt::format("[pick] index -3 at 1 is out of range; expected 0 to 2, at site '{}'",
                  graph.nodes().back()->site.name);
  Tensor numbers({DType::kF32, {2, 3}}), indices({DType::kI64, {2}});
  indices.set(1, -3);
  EXPECT_EQ(user_error([&] { evaluate(graph, *gpu, {{"x", numbers}, {"i", indices}}); }), message);
  OwnProgram program(program_of(std::move(graph)), *gpu);
  const auto run = [&](int64_t index) {
    indices.set(1, static_cast<double>(index));
    program.write(program.input(0, "x"), numbers.data());
    program.write(program.input(0, "i"), indices.data());
    program.run(0);
  };
  run(0);
  program.synchronize();
  run(-3);
  run(1);  // queued behind it before anybody looked
  EXPECT_THAT(user_error([&] { program.synchronize(); }), has(message));
  run(2);  // reported once; valid inputs run again
  program.synchronize();
  // Another program of the backend does not hear of it.
  Graph same("main");
  same.add_output(
      "y", pick(input(same, "x", {DType::kF32, {2, 3}}), input(same, "i", {DType::kI64, {2}})));
  OwnProgram other(program_of(std::move(same)), *gpu);
  other.write(other.input(0, "x"), numbers.data());
  indices.set(1, 2);
  other.write(other.input(0, "i"), indices.data());
  other.run(0);
  run(-3);
  gpu->make_stream()->synchronize();
  other.synchronize();
  EXPECT_THAT(user_error([&] { program.synchronize(); }), has(message));
  other.synchronize();
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
  fake_.memory_bytes = 64 << 10;
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {1 << 20}});
  graph.add_output("y", neg(x));
  EXPECT_THAT(user_error([&] { OwnProgram(program_of(std::move(graph)), *gpu); }),
              has("cuMemAlloc_v2(", "bytes are free", "train.batch"));
}

TEST_F(CudaProgram, AModuleIsLoadedOnceForNodesThatAreAlike) {
  const auto gpu = make_backend_cuda();
  Graph graph("main");
  const Value x = input(graph, "x", {DType::kF32, {64}});
  for (const char* name : {"a", "b", "c"}) {
    const SiteScope scope(graph, name);
    graph.add_output(name, neg(x));
  }
  ProgramOptions options;
  options.passes.off = {"all"};
  const OwnProgram program(program_of(std::move(graph)), *gpu, options);
  EXPECT_EQ(lines({"cuModuleLoadDataEx"}).size(), 1u);
  EXPECT_EQ(lines({"cuModuleUnload"}).size(), 0u);
}

TEST_F(CudaProgram, TheHardwareIsNamed) {
  EXPECT_EQ(make_backend_cuda()->gpu_uuid(), "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe00");
  EXPECT_EQ(make_backend_cuda()->hardware(),
            "NVIDIA Fake 9000, sm_90, driver for CUDA 13.2, no cuBLASLt");
}

}  // namespace
}  // namespace ridge::test
