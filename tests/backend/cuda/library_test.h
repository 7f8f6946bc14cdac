// Nodes by the stand-ins for cuBLASLt and cuDNN, on the stand-in for the driver.
#pragma once

#include <cstdlib>
#include <cstring>
#include <optional>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/fake_library.h"
#include "tests/backend/cuda/test_stream.h"
#include "tests/support/case_builder.h"

namespace ridge::cuda {

using test::CaseBuilder;

/// Stands for the backend's printed kernel for a node of one operand: a kernel of the stand-in.
class PlainNode final : public NodeKernel {
 public:
  PlainNode(const Module& module, const Node& node)
      : kernel_(module.kernel("plain")), graph_(lone_node(node)) {}
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    DevicePointer to = device_pointer(args.outputs[0]), from = device_pointer(args.inputs[0]);
    auto self = reinterpret_cast<DevicePointer>(this);
    void* const arguments[] = {&to, &from, &self};
    cuda::launch(cuda_stream(stream), kernel_, {}, arguments);
  }
  static int run(const test::FakeLaunch& launch) {
    const Graph& graph = launch.pointer<const PlainNode>(2)->graph_;
    NamedTensors operands;
    Tensor& x = operands.emplace("0", Tensor(graph.inputs()[0]->outputs[0])).first->second;
    std::memcpy(x.data(), launch.pointer<std::byte>(1), x.bytes());
    const NamedTensors made = evaluate(graph, *make_backend("ref"), operands);
    std::memcpy(launch.pointer<std::byte>(0), made.at("0").data(), made.at("0").bytes());
    return 0;
  }

 private:
  Kernel kernel_;
  Graph graph_;
};

/// Makes them, for a kernel that lives no longer.
class PlainNodes {
 public:
  explicit PlainNodes(const DeviceRef& gpu)
      : module_(std::make_shared<const Module>(gpu, kPtx, "plain")) {}
  std::unique_ptr<NodeKernel> operator()(const Node& node) const {
    return std::make_unique<PlainNode>(*module_, node);
  }

 private:
  static constexpr const char* kPtx = R"(
.version 8.0
.target sm_80
.visible .entry plain(.param .u64 to, .param .u64 from, .param .u64 node) { ret; }
)";
  std::shared_ptr<const Module> module_;
};

/// The node that was built.
inline const Node& node_of(CaseBuilder& built) { return *built.graph().outputs()[0].value.node; }

/// A kernel of the node that was built, on its inputs: its results, "y0", "y1", ...
inline NamedTensors run_kernel(const DeviceRef& gpu, CaseBuilder& built, const NodeKernel& kernel) {
  const Node& node = node_of(built);
  std::vector<Arena> memory;
  const auto take = [&](size_t bytes) {
    memory.emplace_back(gpu, std::max<size_t>(1, bytes));
    return reinterpret_cast<void*>(memory.back().at(0, bytes));
  };
  std::vector<const void*> inputs;
  for (const Value& value : node.inputs) {
    const Tensor& tensor = built.tensors().at(value.node->op_as<Input>().input_name);
    inputs.push_back(std::memcpy(take(tensor.bytes()), tensor.data(), tensor.bytes()));
  }
  std::vector<void*> outputs;
  for (const TensorType& type : node.outputs)
    outputs.push_back(take(static_cast<size_t>(type.bytes())));
  void* const workspace = take(kernel.workspace_bytes());
  TestStream stream(gpu);
  kernel.launch(stream, {inputs, outputs, workspace});
  stream.synchronize();
  NamedTensors results;
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor y(node.outputs[i]);
    std::memcpy(y.data(), outputs[i], y.bytes());
    results.emplace(fmt::format("y{}", i), std::move(y));
  }
  return results;
}

/// Tests over the stand-in for a library, which lies in `file`, as `variable` says.
template <typename Fake>
class LibraryTest : public FakeDriverTest {
 protected:
  LibraryTest(const char* variable, const char* file, const char* entry)
      : library_(*open_stand_in<Fake*()>(file, entry)()), variable_(variable) {
    ::setenv(variable, file, 1);
    start(Schedule::kAtLast);
  }
  void TearDown() override {
    expect_all_clean();
    ::unsetenv(variable_);
  }
  void expect_all_clean() const {
    expect_clean(library_);
    expect_clean();
  }
  void start(Schedule schedule, uint64_t seed = 0) {
    fake_.reset();
    fake_.on_kernel("plain", PlainNode::run);
    fake_.set_schedule(schedule, seed);
    library_.reset(RIDGE_FAKE_CUDA);
  }
  void start_in_turn(uint64_t seed) {
    constexpr Schedule kAll[] = {Schedule::kAtLast, Schedule::kAtOnce, Schedule::kRandom};
    start(kAll[seed % 3], seed);
  }
  std::vector<std::string> library_lines(const std::string& name) const {
    return lines_of(library_.log(), {name});
  }

  /// Whatever call of the library fails, the end is one clean error, and nothing is left; a failed
  /// call `quiet` need not be reported.
  template <typename Error, typename Run>
  void expect_each_call_may_fail(int code, Run run, const std::string& quiet = {}) {
    run();
    const std::vector<std::string> clean = library_.log();
    ASSERT_GT(clean.size(), 30u);
    for (size_t n = 0; n < clean.size(); ++n) {
      const std::string call = clean[n].substr(0, clean[n].find(' '));
      SCOPED_TRACE(fmt::format("call {} ({})", n + 1, clean[n]));
      start(Schedule::kAtLast);
      library_.fail("", static_cast<int64_t>(n) + 1, code);
      const std::optional<Error> error = error_of<Error>(run);
      // A call that destroys cannot report an error.
      if (call != quiet) {
        EXPECT_EQ(error.has_value(), !destroys(call));
      }
      if (error) {
        EXPECT_EQ(error->call(), call);
        EXPECT_EQ(static_cast<int>(error->result()), code);
      }
      expect_all_clean();
      if (HasFailure()) return;
    }
  }

  Fake& library_;

 private:
  const char* variable_;
};

}  // namespace ridge::cuda
