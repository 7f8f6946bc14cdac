// Nodes by the stand-ins for cuBLASLt and cuDNN, on the stand-in for the driver.
#pragma once

#include <cstdlib>
#include <cstring>
#include <list>
#include <map>
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

/// Stands for the backend's own kernels of a graph of inputs "0", "1", ... and results "0", "1",
/// ...: a kernel of the stand-in.
class PlainKernel final : public NodeKernel {
 public:
  PlainKernel(const Module& module, Graph graph)
      : kernel_(module.kernel("plain")), graph_(std::move(graph)) {}
  void launch(ridge::Stream& stream, const KernelArgs& args) const override {
    // The addresses of a launch live as long as the kernel: it runs later.
    const Launched& launched =
        launched_.emplace_back(Launched{&graph_,
                                        {args.inputs.begin(), args.inputs.end()},
                                        {args.outputs.begin(), args.outputs.end()}});
    auto self = reinterpret_cast<DevicePointer>(&launched);
    void* const arguments[] = {&self};
    cuda::launch(cuda_stream(stream), kernel_, {}, arguments);
  }
  static int run(const test::FakeLaunch& launch) {
    const auto& launched = *launch.pointer<const Launched>(0);
    NamedTensors operands;
    for (const Node* node : launched.graph->inputs()) {
      const std::string& name = node->op_as<Input>().input_name;
      Tensor& x = operands.emplace(name, Tensor(node->outputs[0])).first->second;
      std::memcpy(x.data(), launched.inputs.at(std::stoul(name)), x.bytes());
    }
    for (const auto& [name, made] : evaluate(*launched.graph, *make_backend("ref"), operands))
      std::memcpy(launched.outputs.at(std::stoul(name)), made.data(), made.bytes());
    return 0;
  }

 private:
  struct Launched {
    const Graph* graph;
    std::vector<const void*> inputs;
    std::vector<void*> outputs;
  };

  Kernel kernel_;
  Graph graph_;
  mutable std::list<Launched> launched_;
};

/// Makes them, for a kernel that lives no longer.
class PlainKernels {
 public:
  explicit PlainKernels(const DeviceRef& gpu)
      : module_(std::make_shared<const Module>(gpu, kPtx, "plain")) {}
  std::unique_ptr<NodeKernel> operator()(const Node& node) const {
    return std::make_unique<PlainKernel>(*module_, lone_node(node));
  }
  std::unique_ptr<NodeKernel> operator()(const Graph& form) const {
    return std::make_unique<PlainKernel>(*module_, form.clone());
  }

 private:
  static constexpr const char* kPtx = R"(
.version 8.0
.target sm_80
.visible .entry plain(.param .u64 launched) { ret; }
)";
  std::shared_ptr<const Module> module_;
};

/// The node that was built.
inline const Node& node_of(CaseBuilder& built) { return *built.graph().outputs()[0].value.node; }

/// A kernel of the node that was built, on its inputs, or on `others` by their numbers: its
/// results, "y0", "y1", ...
inline NamedTensors run_kernel(const DeviceRef& gpu,
                               CaseBuilder& built,
                               const NodeKernel& kernel,
                               const std::map<size_t, Tensor>& others = {}) {
  const Node& node = node_of(built);
  std::vector<Arena> memory;
  const auto take = [&](size_t bytes) {
    memory.emplace_back(gpu, std::max<size_t>(1, bytes));
    return reinterpret_cast<void*>(memory.back().at(0, bytes));
  };
  std::vector<const void*> inputs;
  for (const Value& value : node.inputs) {
    const auto other = others.find(inputs.size());
    const Tensor& tensor = other != others.end()
                               ? other->second
                               : built.tensors().at(value.node->op_as<Input>().input_name);
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
    fake_.on_kernel("plain", PlainKernel::run);
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
