// Nodes by cuBLASLt's stand-in, on the stand-in for the driver.
#pragma once

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <optional>

#include "ridge/backend/cuda/arena.h"
#include "ridge/backend/cuda/blas_matmul.h"
#include "ridge/backend/cuda/module.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda/fake_blas/fake_blas.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/test_stream.h"
#include "tests/support/case_builder.h"

namespace ridge::cuda {

using test::CaseBuilder;
using test::FakeBlas;

inline constexpr const char* kCastPtx = R"(
.version 8.0
.target sm_80
.visible .entry cast(.param .u64 to, .param .u64 from, .param .u32 count, .param .u32 dtype) { ret; }
)";

// What the backend prints for a cast: here a kernel of the stand-in.
class CastNode final : public NodeKernel {
 public:
  CastNode(const Module& module, const Node& node)
      : kernel_(module.kernel("cast")),
        count_(static_cast<uint32_t>(node.outputs[0].elements())),
        dtype_(static_cast<uint32_t>(node.outputs[0].dtype)) {}
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    DevicePointer to = device_pointer(args.outputs[0]), from = device_pointer(args.inputs[0]);
    uint32_t count = count_, dtype = dtype_;
    void* const arguments[] = {&to, &from, &count, &dtype};
    cuda::launch(cuda_stream(stream), kernel_, {}, arguments);
  }

 private:
  Kernel kernel_;
  uint32_t count_, dtype_;
};

inline void register_cast(test::FakeCuda& fake) {
  fake.on_kernel("cast", [](const test::FakeLaunch& launch) {
    const float* const from = launch.pointer<float>(1);
    for (uint32_t i = 0; i < launch.parameter<uint32_t>(2); ++i)
      if (static_cast<DType>(launch.parameter<uint32_t>(3)) == DType::kBF16)
        launch.pointer<BF16>(0)[i] = BF16(from[i]);
      else
        launch.pointer<F16>(0)[i] = F16(from[i]);
    return 0;
  });
}

inline FakeBlas& open_fake_blas() {
  return *open_stand_in<test::FakeBlasEntry>(RIDGE_FAKE_CUBLASLT, test::kFakeBlasEntry)();
}

class CudaBlas : public FakeDriverTest {
 protected:
  CudaBlas() : blas_(open_fake_blas()) {
    ::setenv("RIDGE_CUBLASLT", RIDGE_FAKE_CUBLASLT, 1);
    start(Schedule::kAtLast);
  }
  void TearDown() override {
    expect_blas_clean();
    FakeDriverTest::TearDown();
    ::unsetenv("RIDGE_CUBLASLT");
  }
  void expect_blas_clean() const {
    EXPECT_EQ(blas_.live(), std::vector<std::string>{});
    EXPECT_EQ(blas_.faults(), std::vector<std::string>{});
  }
  void start(Schedule schedule, uint64_t seed = 0) {
    fake_.reset();
    register_cast(fake_);
    fake_.set_schedule(schedule, seed);
    blas_.reset(RIDGE_FAKE_CUDA);
  }
  std::vector<std::string> blas_lines(const std::string& name) const {
    std::vector<std::string> found;
    for (const std::string& line : blas_.log())
      if (line == name || line.starts_with(name + " ")) found.push_back(line);
    return found;
  }

  /// Whatever call of the library fails, the end is one clean error, and nothing is left.
  void expect_each_call_may_fail(CaseBuilder& built);

  FakeBlas& blas_;
};

inline std::shared_ptr<const Blas> make_blas(const DeviceRef& gpu) {
  return std::make_shared<const Blas>(gpu, BlasLibrary::open());
}

// The node of a graph that was built, by the first choice, from the driver's start to its end: its
// results, "y0", "y1", ...
inline NamedTensors run_node(const DeviceRef& gpu, CaseBuilder& built) {
  const Node& node = *built.graph().outputs()[0].value.node;
  const auto blas = make_blas(gpu);
  const Module casts(gpu, kCastPtx, "casts");
  const std::vector<BlasChoice> choices = blas_choices(*blas, node);
  check_internal(!choices.empty(), "no choices");
  const auto kernel = make_blas_kernel(blas, node, choices[0], [&](const Node& cast) {
    return std::make_unique<CastNode>(casts, cast);
  });
  std::vector<Arena> memory;
  const auto take = [&](size_t bytes) {
    memory.emplace_back(gpu, std::max<size_t>(1, bytes));
    return reinterpret_cast<void*>(memory.back().at(0, bytes));
  };
  std::vector<const void*> inputs;
  for (const Value& value : node.inputs) {
    const Tensor& tensor = built.tensors().at(value.node->op_as<Input>().input_name);
    void* const place = take(tensor.bytes());
    std::memcpy(place, tensor.data(), tensor.bytes());
    inputs.push_back(place);
  }
  std::vector<void*> outputs;
  for (const TensorType& type : node.outputs)
    outputs.push_back(take(static_cast<size_t>(type.bytes())));
  void* const workspace = take(kernel->workspace_bytes());
  TestStream stream(gpu);
  kernel->launch(stream, {inputs, outputs, workspace});
  stream.synchronize();
  NamedTensors results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor y(node.outputs[i]);
    std::memcpy(y.data(), outputs[i], y.bytes());
    results.emplace(fmt::format("y{}", i), std::move(y));
  }
  return results;
}

inline void CudaBlas::expect_each_call_may_fail(CaseBuilder& built) {
  run_node(device(), built);
  const std::vector<std::string> clean = blas_.log();
  ASSERT_GT(clean.size(), 30u);
  for (size_t n = 0; n < clean.size(); ++n) {
    const std::string call = clean[n].substr(0, clean[n].find(' '));
    SCOPED_TRACE(fmt::format("call {} ({})", n + 1, clean[n]));
    start(Schedule::kAtLast);
    blas_.fail("", static_cast<int64_t>(n) + 1, 13);
    std::optional<std::string> failed;
    try {
      run_node(device(), built);
    } catch (const BlasError& error) {
      failed = error.call();
      EXPECT_EQ(error.result(), BlasResult::kExecutionFailed);
    }
    // Shapes of algorithms that know none are no error, and what destroys has nobody to tell.
    const bool may_fail =
        destroys(call) || (call == "cublasLtMatmulAlgoConfigGetAttribute" && !failed);
    EXPECT_EQ(failed, may_fail ? std::nullopt : std::optional(call));
    expect_blas_clean();
    expect_clean();
    if (HasFailure()) return;
  }
}

}  // namespace ridge::cuda
