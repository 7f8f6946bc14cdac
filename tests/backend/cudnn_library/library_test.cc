// NVIDIA's cuDNN itself, where one lies, plans for GPUs that are not here: it takes our graphs,
// has engines for them, and compiles those that it compiles. Nothing runs.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

#include "ridge/backend/cuda/dnn/planner.h"
#include "ridge/base/clock.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/ops/source.h"
#include "tests/backend/cuda/convolution_forms.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::attention_node;
using test::AttentionCase;
using test::convolution_of;
using test::ConvolutionForm;

struct Gpu {
  const char* name;
  int capability, multiprocessors, shared_bytes;
};
constexpr Gpu kA100{"NVIDIA A100-SXM4-80GB", 800, 108, 166912};
constexpr Gpu kH200{"NVIDIA H200", 900, 132, 232448};
constexpr Gpu kB200{"NVIDIA B200", 1000, 148, 232448};

// The properties of a device as cuDNN writes them.
std::string properties(const Gpu& gpu) {
  return fmt::format(
      R"({{"version":1,"maxGridSize":[2147483647,65535,65535],"maxBlockSize":[1024,1024,64],)"
      R"("regsPerBlock":65536,"multiProcessorCount":{},"smCountOrigin":0,"warpSize":32,)"
      R"("maxSharedMemoryPerBlock":49152,"maxSharedMemoryPerBlockOptin":{},)"
      R"("reservedSharedMemoryPerBlock":1024,"oversizedSharedMemoryPerBlock":0,)"
      R"("maxRegistersPerSM":65536,"maxCtasPerSM":32,"maxThreadsPerBlock":1024,)"
      R"("maxThreadsPerSM":2048,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,)"
      R"("totalGlobalMem":85017624576,"smClockRateKHz":1980000,"memClockRateKHz":3201000,)"
      R"("memoryBusWidth":6144,"l2CacheSize":62914560,"cudaDeviceId":0,"deviceVer":{},)"
      R"("driverVer":13000,"deviceName":"{}"}})",
      gpu.multiprocessors,
      gpu.shared_bytes,
      gpu.capability,
      gpu.name);
}

class CudnnLibrary : public testing::Test {
 protected:
  void SetUp() override {
    if (std::getenv("RIDGE_CUDNN") == nullptr && !test::is_full_scale())
      GTEST_SKIP() << "RIDGE_CUDNN names no libcudnn.so.9; the long form looks for one";
    // Parts of the library are linked against the driver: found by its name, once it is here.
    ASSERT_NE(::dlopen(RIDGE_STUB_CUDA, RTLD_NOW | RTLD_LOCAL), nullptr) << ::dlerror();
    try {
      library_ = DnnLibrary::open();
    } catch (const UserError& error) {
      if (std::getenv("RIDGE_CUDNN") != nullptr) FAIL() << error.message();
      GTEST_SKIP() << error.message();
    }
    if (library_->version < 90800)
      GTEST_SKIP() << "cuDNN " << library_->version_text << " plans for no device that is not here";
    dnn_ = std::make_unique<const Dnn>(library_, properties(kH200));
    std::printf("cuDNN %s: %s\n", library_->version_text.c_str(), library_->path.c_str());
  }
  std::vector<DnnChoice> choices(const Node& node) const { return choices(*dnn_, node); }
  static std::vector<DnnChoice> choices(const Dnn& dnn, const Node& node) {
    std::vector<DnnChoice> all = dnn_choices(dnn, node);
    for (const DnnChoice& each : all)
      std::printf("  %s, %zu bytes\n", each.choice.name.c_str(), each.plan->workspace_bytes);
    return all;
  }

  DnnLibraryRef library_;
  std::unique_ptr<const Dnn> dnn_;
};

// Layers of ResNet-18 and MobileNetV2 with 32 images, and forms that the examples lack.
constexpr int64_t kImages = 32;
const ConvolutionForm kLayers[] = {
    {"first of ResNet", {kImages, 224, 224, 3}, {7, 7, 3, 64}, 2, 3, 1, 1},
    {"3x3, 64", {kImages, 56, 56, 64}, {3, 3, 64, 64}, 1, 1, 1, 1},
    {"3x3, 64 to 128, halving", {kImages, 56, 56, 64}, {3, 3, 64, 128}, 2, 1, 1, 1},
    {"shortcut", {kImages, 56, 56, 64}, {1, 1, 64, 128}, 2, 0, 1, 1},
    {"3x3, 512", {kImages, 7, 7, 512}, {3, 3, 512, 512}, 1, 1, 1, 1},
    {"1x1 of MobileNet", {kImages, 56, 56, 24}, {1, 1, 24, 144}, 1, 0, 1, 1},
    {"depthwise", {kImages, 56, 56, 144}, {3, 3, 1, 144}, 1, 1, 1, 144},
    {"depthwise, halving", {kImages, 56, 56, 144}, {3, 3, 1, 144}, 2, 1, 1, 144},
    {"grouped", {kImages, 28, 28, 64}, {3, 3, 16, 64}, 1, 1, 1, 4},
    {"dilated", {8, 28, 28, 64}, {3, 3, 64, 64}, 1, 2, 2, 1},
    {"odd sizes", {2, 7, 9, 5}, {3, 2, 5, 7}, 1, 1, 1, 1},
};

Value add_input(Graph& graph, TensorType type) {
  return input(graph, fmt::format("{}", graph.inputs().size()), std::move(type));
}

const Node& build(Graph& graph, const ConvolutionForm& form, int part, DType dtype) {
  return *convolution_of(form, part, [&](const Shape& shape) {
            return add_input(graph, {dtype, shape});
          }).node;
}

TEST_F(CudnnLibrary, PlansEveryConvolution) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32})
    for (const ConvolutionForm& layer : kLayers)
      for (int part = 0; part < 3; ++part) {
        Graph graph("convolution");
        const Node& node = build(graph, layer, part, dtype);
        std::printf("%s, part %d, %s\n", layer.what, part, name_of(dtype).data());
        const std::vector<DnnChoice> all = choices(node);
        EXPECT_FALSE(all.empty()) << layer.what << ", part " << part << ", " << name_of(dtype);
        // In 16 bits they are among its best guesses.
        if (dtype == DType::kF32) continue;
        EXPECT_FALSE(
            make_dnn_plans(*dnn_, convolution_graph(*dnn_, *dnn_convolution(node)), {}).empty())
            << layer.what << ", part " << part;
      }
}

// The same plans as one after the other, which the library then knows. How long it takes is
// printed.
TEST_F(CudnnLibrary, PlansSideBySide) {
  Graph graph("convolutions");
  std::vector<const Node*> nodes;
  for (const ConvolutionForm& layer : kLayers)
    for (int part = 0; part < 3; ++part) {
      const SiteScope scope(graph, fmt::format("n{}", nodes.size()));
      nodes.push_back(&build(graph, layer, part, DType::kBF16));
    }
  const auto names = [](const std::vector<DnnChoice>& choices) {
    std::vector<std::string> all;
    for (const DnnChoice& each : choices) all.push_back(each.choice.name);
    return all;
  };
  const auto dnn = std::make_shared<const Dnn>(library_, properties(kH200));
  DnnPlanner planner(dnn);
  std::vector<std::vector<std::string>> beside, alone;
  const int64_t start = now_ns();
  for (const Node* node : nodes) beside.push_back(names(planner.choices(*node)));
  std::printf("%zu nodes by %d threads: %.1f s\n",
              nodes.size(),
              num_threads(),
              static_cast<double>(now_ns() - start) * 1e-9);
  for (const Node* node : nodes) alone.push_back(names(dnn_choices(*dnn, *node)));
  EXPECT_EQ(beside, alone);
}

// By its knobs, too: an engine has more than one way.
TEST_F(CudnnLibrary, NamesTellPlansApart) {
  Graph graph("convolution");
  const std::vector<DnnChoice> all = choices(build(graph, kLayers[1], 0, DType::kBF16));
  ASSERT_EQ(all.size(), 2u);
  EXPECT_THAT(all[0].choice.name, test::has("_k2="));
  EXPECT_NE(all[0].choice.name, all[1].choice.name);
}

bool uses_tensor_cores(const DnnPlan& plan) {
  return std::find(plan.notes.begin(), plan.notes.end(), DnnNumericalNote::kTensorCore) !=
         plan.notes.end();
}

TEST_F(CudnnLibrary, RoundsNoFactorsOfF32UnlessAsked) {
  for (int part = 0; part < 3; ++part) {
    Graph graph("convolution");
    const Node& node = build(graph, kLayers[1], part, DType::kF32);
    const std::vector<DnnChoice> all = choices(node);
    EXPECT_FALSE(all.empty());
    for (const DnnChoice& each : all)
      EXPECT_FALSE(uses_tensor_cores(*each.plan)) << each.choice.name;
    const auto convolution = dnn_convolution(node);
    ASSERT_TRUE(convolution.has_value());
    const auto rounded = make_dnn_plans(*dnn_, convolution_graph(*dnn_, *convolution), {});
    ASSERT_FALSE(rounded.empty());
    EXPECT_TRUE(uses_tensor_cores(*rounded[0])) << rounded[0]->name;
  }
}

// Forward and backward, by an engine that compiles what it has matched as one. The workspace shows
// how: forward none of scores, backward their gradient in 16 bits and no more.
TEST_F(CudnnLibrary, PlansAttention) {
  struct Case {
    Gpu gpu;
    AttentionCase form;
    DType dtype;
  };
  const AttentionCase gpt2{64, 12, 1024, 1024, 64, 64, true, {}, true};
  const Case kCases[] = {
      {kA100, gpt2, DType::kBF16},
      {kH200, gpt2, DType::kBF16},
      {kB200, gpt2, DType::kBF16},
      {kH200, {64, 12, 1024, 1024, 64, 64}, DType::kF16},
      {kH200, {2, 4, 17, 17, 40, 40, true, {}, true}, DType::kBF16},
      {kA100, {2, 4, 100, 60, 128, 128}, DType::kF16},
  };
  for (const auto& [gpu, h, dtype] : kCases) {
    const Dnn dnn(library_, properties(gpu));
    std::printf("%s: %lld queries of %lld, %s\n",
                gpu.name,
                static_cast<long long>(h.queries),
                static_cast<long long>(h.depth),
                name_of(dtype).data());
    Graph graph("attention");
    const auto operand = [&](TensorType type, double, double) {
      return add_input(graph, std::move(type));
    };
    const size_t rows = static_cast<size_t>(h.batch * h.heads * h.queries);
    const auto expect_planned = [&](const Node& node, size_t most_bytes) {
      const std::vector<DnnChoice> all = choices(dnn, node);
      ASSERT_EQ(all.size(), 1u) << gpu.name;
      EXPECT_TRUE(uses_tensor_cores(*all[0].plan));
      EXPECT_LE(all[0].plan->workspace_bytes, most_bytes);
    };
    constexpr size_t kSmall = 4096;
    expect_planned(*attention_node<Attention>(h, dtype, operand).node, kSmall);
    const auto tiles = static_cast<size_t>((h.queries + 127) / 128 * ((h.keys + 127) / 128));
    const size_t scores = static_cast<size_t>(h.batch * h.heads) * tiles * 128 * 128;
    expect_planned(*attention_node<AttentionGrad>(h, dtype, operand).node,
                   scores * size_of(dtype) + rows * sizeof(float) + kSmall);
  }
}

// The library refuses graphs that are wrong.
TEST_F(CudnnLibrary, RefusesWhatIsWrong) {
  DnnDescriptor tensor = dnn_->make(DnnKind::kTensor);
  EXPECT_THROW(tensor.set(DnnAttribute::kTensorDataType, int64_t{0}), DnnError);
  EXPECT_THROW(tensor.finalize(), DnnError);
  DnnConvolution c{.kind = DnnKind::kConvolutionForward,
                   .dtype = DType::kBF16,
                   .x = {2, 8, 8, 16},
                   .w = {3, 3, 16, 16},
                   .y = {2, 7, 8, 16},  // one row too few
                   .window = {}};
  c.window.padding = {1, 1, 1, 1};
  try {
    convolution_graph(*dnn_, c);
    FAIL() << "it is wrong";
  } catch (const DnnError& error) {
    EXPECT_EQ(error.call(), "cudnnBackendFinalize");
    EXPECT_THAT(error.what(), test::has("BAD_PARAM"));
  }
}

}  // namespace
}  // namespace ridge::cuda
