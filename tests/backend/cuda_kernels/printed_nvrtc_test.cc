// Printed kernels through NVIDIA's compiler, which needs no GPU: they compile for each generation
// of devices, and no thread needs local memory. Skipped where there is no NVRTC.
#include "tests/backend/cuda_kernels/printed_nvrtc.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "ridge/backend/cuda/driver/nvrtc.h"
#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/backend/cuda/printed_node.h"
#include "ridge/base/error.h"
#include "ridge/compile/pipeline.h"
#include "ridge/config/text.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/run/backends.h"
#include "ridge/train/task.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/backend/cuda_kernels/row_graphs.h"
#include "tests/backend/cuda_kernels/test_limits.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/list_backend.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"
#include "tests/train/example_inputs.h"

namespace ridge::test {
namespace {

using cuda::CubinCache;
using cuda::Nvrtc;
using test::KernelUse;

std::string source_of(std::string_view body) {
  return "#include \"ridge/backend/cuda/device/kernel.h\"\n"
         "extern \"C\" __global__ void __launch_bounds__(1024) one(const float* x, float* y, int "
         "n) {" +
         std::string(body) + "}\n";
}

TEST(Nvrtc, AnotherLibraryIsOneClearError) {
  const char* before = ::getenv("RIDGE_NVRTC");
  const std::string kept = before == nullptr ? "" : before;
  ::setenv("RIDGE_NVRTC", "/usr/lib/x86_64-linux-gnu/libm.so.6", 1);
  const std::string message = user_error([] { Nvrtc::open(); });
  before == nullptr ? ::unsetenv("RIDGE_NVRTC") : ::setenv("RIDGE_NVRTC", kept.c_str(), 1);
  EXPECT_THAT(message, has("is no NVRTC of CUDA 12 or later"));
}

TEST(Nvrtc, AWrongSourceIsRefusedWithTheLog) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const std::string message =
      user_error([] { nvrtc()->compile(source_of("y[0] = nothing;"), "wrong", "sm_90"); });
  EXPECT_THAT(message,
              has("kernel 'wrong' does not compile for sm_90", "\"nothing\" is undefined"));
}

// The check of local memory can fail: by an array read at a place known at run time, and by more
// values than 1024 threads have registers for.
TEST(Nvrtc, LocalMemoryIsSeen) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const auto use = [](std::string_view body, const std::string& architecture) {
    return test::read_cubin(nvrtc()->compile(source_of(body), "one", architecture)).at(0);
  };
  const std::string_view spilled =
      "float v[100], sum = 0;\n#pragma unroll\n"
      "for (int i = 0; i < 100; ++i) sum += v[i] = x[i * 1024 + threadIdx.x];\n"
      "__syncthreads();\n#pragma unroll\n"
      "for (int i = 0; i < 100; ++i) y[i * 1024 + threadIdx.x] = v[i] * sum;";
  const std::string_view indexed =
      "float v[256]; for (int i = 0; i < 256; ++i) v[i * n & 255] = x[i]; y[0] = v[n];";
  for (const char* architecture : {"sm_80", "sm_90", "sm_100"}) {
    const KernelUse plain = use("y[threadIdx.x] = x[threadIdx.x];", architecture);
    EXPECT_EQ(plain.entry, "one");
    EXPECT_EQ(plain.local_bytes, 0);
    EXPECT_GT(plain.registers, 0);
    EXPECT_GE(use(indexed, architecture).local_bytes, 1024);
    const KernelUse spill = use(spilled, architecture);
    EXPECT_GT(spill.local_bytes, 0);
    EXPECT_LE(spill.registers, 64);
  }
}

TEST(Nvrtc, TheCacheKeepsWholeFilesAlone) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const TempFolder folder;
  const CubinCache cache(nvrtc(), folder.path() / "kernels");
  const std::string source = source_of("y[0] = x[0];");
  const std::string first = cache.compile(source, "one", "sm_90");
  const auto files = [&] {
    std::vector<std::filesystem::path> found;
    for (const auto& each : std::filesystem::directory_iterator(folder.path() / "kernels"))
      found.push_back(each.path());
    return found;
  };
  ASSERT_EQ(files().size(), 1u);
  // From the file: a compiler that is asked for nonsense is not asked.
  EXPECT_EQ(cache.compile(source, "another name", "sm_90"), first);
  EXPECT_EQ(files().size(), 1u);
  EXPECT_NE(cache.compile(source, "one", "sm_80"), first);
  EXPECT_EQ(files().size(), 2u);
  for (const auto& path : files()) std::filesystem::resize_file(path, 40);
  EXPECT_EQ(cache.compile(source, "one", "sm_90"), first);
  EXPECT_EQ(test::read_cubin(first).at(0).entry, "one");
}

TEST(Nvrtc, AFolderThatCannotBeWrittenCostsNoRun) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  const CubinCache cache(nvrtc(), "/proc/no/such/folder");
  EXPECT_FALSE(cache.compile(source_of("y[0] = x[0];"), "one", "sm_90").empty());
}

TEST(Cubin, WhatIsNoCubinIsRefused) {
  const std::string elf = "\177ELF\2\1";
  const std::string zeros(58, '\0'), ones(58, '\xff');
  for (const std::string& text : {std::string(), std::string("text"), elf, elf + zeros, elf + ones})
    EXPECT_THAT(user_error([&] { test::read_cubin(text); }), has("[cubin]"));
}

// ---- long rows ----

// The loss of some rows of logits, with its gradient.
cuda::PrintedKernel loss_kernel(DType dtype, int64_t columns, const cuda::DeviceLimits& limits) {
  Graph graph = loss_of(dtype, 64, columns);
  const auto cpu = make_backend("cpu");
  run_pipeline(graph, *cpu, {.highest = SemanticClass::kReassociation});
  cuda::PrintedKernel found;
  for (const auto& node : graph.nodes())
    if (node->is<Fused>() && std::ranges::any_of(node->outputs, [&](const TensorType& type) {
          return type.shape == Shape{64, columns};
        }))
      found = cuda::print_kernel(*node, limits).kernel.value();
  return found;
}

TEST(PrintedKernels, ALongRowIsReadOnceWhereABlockHasRoomForIt) {
  const std::shared_ptr<const Nvrtc> compiler = nvrtc();
  struct {
    cuda::DeviceLimits limits;
    DType dtype;
    int64_t columns;
    bool is_kept;
  } const cases[] = {{kH200, DType::kBF16, 50257, true},
                     {kA100, DType::kBF16, 50257, true},
                     {kRtx3090, DType::kBF16, 50257, false},
                     {kRtx5090, DType::kF32, 20000, true},
                     {kH200, DType::kF32, 50257, true},
                     {kA100, DType::kF32, 50257, false},
                     {kH200, DType::kF32, 2048, false}};
  for (const auto& [limits, dtype, columns, is_kept] : cases) {
    SCOPED_TRACE(fmt::format("sm_{}{}, rows of {}", limits.major, limits.minor, columns));
    const cuda::PrintedKernel kernel = loss_kernel(dtype, columns, limits);
    ASSERT_FALSE(kernel.launches.empty());
    EXPECT_EQ(launch_refusal(kernel, limits), "");
    const size_t bytes = is_kept ? static_cast<size_t>(columns) * size_of(dtype) : 0;
    EXPECT_GE(kernel.launches[0].shared_bytes, bytes);
    EXPECT_LE(kernel.launches[0].shared_bytes, bytes + 64);
    if (compiler == nullptr) continue;
    const std::string architecture = fmt::format("sm_{}{}", limits.major, limits.minor);
    const std::vector<KernelUse> uses =
        test::read_cubin(compiler->compile(kernel.source, kernel.name, architecture));
    for (const KernelUse& use : uses) {
      EXPECT_EQ(use.local_bytes, 0) << use.registers << " registers";
      const auto launch = std::ranges::find(kernel.launches, use.entry, &cuda::KernelLaunch::entry);
      ASSERT_NE(launch, kernel.launches.end());
      if (launch->shared_bytes == 0) continue;
      EXPECT_EQ(use.shared_bytes - (limits.major >= 9 ? 1024 : 0), launch->static_shared_bytes);
    }
  }
}

// ---- rows in registers ----

// The loops over whole rows of a norm in bf16, forward and backward with its sums over rows.
std::vector<cuda::PrintedKernel> norm_kernels(int64_t columns) {
  CaseBuilder b(DType::kBF16, 1);
  const Shape rows{4096, columns};
  const auto wide = [&] { return cast(b.input(rows), DType::kF32); };
  const Value x = wide(), dy = wide();
  const Value gamma = b.input(DType::kF32, {columns}, -1, 1),
              beta = b.input(DType::kF32, {columns}, -1, 1);
  const Value y = layer_norm(x, gamma, beta);
  std::vector<Value> results = {cast(y, DType::kBF16)};
  for (const Value& gradient : vector_jacobian_product(
           std::vector<Value>{y}, std::vector<Value>{dy}, std::vector<Value>{x, gamma, beta}))
    results.push_back(gradient);
  b.finish(results);
  return held_kernels(b.graph().clone(), kH200);
}

// A multiprocessor holds at least two blocks. The numbers are those of bench/README.md.
TEST(PrintedKernels, RowsInRegistersLeaveRoomForAnotherBlock) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  std::vector<const char*> architectures = {"sm_90"};
  std::vector<int64_t> sizes = {768};
  if (is_full_scale())
    architectures = {"sm_80", "sm_90", "sm_100", "sm_120"}, sizes = {768, 1024, 1536, 2048};
  for (const int64_t columns : sizes) {
    const std::vector<cuda::PrintedKernel> kernels = norm_kernels(columns);
    EXPECT_FALSE(kernels.empty()) << columns;
    for (const cuda::PrintedKernel& kernel : kernels)
      for (const std::string architecture : architectures)
        for (const KernelUse& use :
             test::read_cubin(nvrtc()->compile(kernel.source, kernel.name, architecture))) {
          const auto launch =
              std::ranges::find(kernel.launches, use.entry, &cuda::KernelLaunch::entry);
          ASSERT_NE(launch, kernel.launches.end());
          const int64_t warps = (int64_t{1} << 16) / ((use.registers + 7) / 8 * 8 * 32);
          std::printf("%ld columns, %s: %d registers of %ld threads, %ld warps\n",
                      static_cast<long>(columns),
                      architecture.c_str(),
                      use.registers,
                      static_cast<long>(launch->threads),
                      static_cast<long>(warps));
          EXPECT_EQ(use.local_bytes, 0);
          EXPECT_GE(warps * 32, 2 * launch->threads);
        }
  }
}

// ---- the kernels of the example configurations ----

struct Found {
  std::map<std::string, cuda::PrintedKernel> kernels;  // by name
  std::map<std::string, std::string> refused;          // by site
};

// Stands for a GPU without libraries, as passes see it: it keeps 16 bits, runs lists of loops, and
// leaves nodes without a kernel to their plain form.
class PrintedDevice final : public ListBackend {
 public:
  bool stores_16_bits() const override { return true; }
  std::vector<Choice> candidates(const Node& node) const override {
    if (node.op->has_plain_form() && !cuda::print_kernel(node, kH200).kernel &&
        !cuda::print_mma_kernel(node, kH200).kernel)
      return {};
    return ListBackend::candidates(node);
  }
};

void add_kernels(const std::string& name,
                 const TrainConfig& config,
                 DType precision,
                 Found& found) {
  PrintedDevice device;
  const Task task = open_task(config);
  ProgramOptions options = program_options(config, task);
  options.passes.precision = precision;
  if (precision != DType::kF32) options.passes.highest = SemanticClass::kPrecision;
  for (Graph& graph : task.training->program(task.sizes).entries) {
    run_pipeline(graph, device, options.passes);
    for (const auto& node : graph.nodes()) {
      if (node->is<Input>()) continue;
      bool is_printed = false;
      for (const auto print :
           {cuda::print_kernel, cuda::print_mma_kernel, cuda::print_approx_kernel})
        if (cuda::Printing each = print(*node, kH200); each.kernel) {
          found.kernels.emplace(each.kernel->name, std::move(*each.kernel));
          is_printed = true;
        }
      if (!is_printed)
        found.refused[name + " " + node->site.name] = cuda::print_kernel(*node, kH200).refusal;
    }
  }
}

// All of them in f32 and bf16.
TEST(PrintedKernels, ThoseOfAllExamplesCompileWithoutLocalMemory) {
  if (nvrtc() == nullptr) GTEST_SKIP() << kNoNvrtc;
  Found found;
  size_t number = 0;
  const auto add = [&](const std::string& name, const TrainConfig& config) {
    for (const DType precision : {DType::kF32, DType::kBF16})
      if (is_drawn(number++, 3)) add_kernels(name, config, precision, found);
  };
  for (const char* folder : {"bench/configs", "bench/gpu"})
    for (const auto& each : std::filesystem::directory_iterator(folder))
      add(each.path().string(), load_config_file(each.path().string(), {}).config);
  for (const std::string& name : kExamples) {
    const ExampleInputs example(name);
    if (example.missing().empty())
      add(name, example.config({}));
    else
      std::printf("left out: %s, %s\n", name.c_str(), example.missing().c_str());
  }
  for (const auto& [site, why] : found.refused) ADD_FAILURE() << site << ' ' << why;
  EXPECT_GE(found.kernels.size(), is_short_scale() ? 100u : 400u);
  std::vector<cuda::PrintedKernel> all;
  for (auto& [name, kernel] : found.kernels) all.push_back(std::move(kernel));
  expect_compile(all);
}

}  // namespace
}  // namespace ridge::test
