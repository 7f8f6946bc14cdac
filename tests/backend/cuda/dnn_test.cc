// Convolution and attention by cuDNN, over a stand-in that computes on the host.
#include "ridge/backend/cuda/dnn/nodes.h"
#include "ridge/graph/ops/elementwise.h"
#include "tests/backend/cuda/convolution_forms.h"
#include "tests/backend/cuda/fake_dnn/fake_dnn.h"
#include "tests/backend/cuda/library_test.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::attention_of;
using test::AttentionCase;
using test::convolution_of;
using test::ConvolutionForm;
using test::gradient_of;
using test::has;
using test::Random;

std::shared_ptr<const Dnn> make_dnn(const DeviceRef& gpu) {
  return std::make_shared<const Dnn>(gpu, DnnLibrary::open());
}

// The node of a graph that was built, by the first choice, from the driver's start to its end.
NamedTensors run_node(const DeviceRef& gpu, CaseBuilder& built) {
  const Node& node = node_of(built);
  const auto dnn = make_dnn(gpu);
  const PlainKernels plain(gpu);
  const auto kernel = make_dnn_kernel(dnn, node, dnn_choices(*dnn, node).at(0), plain);
  kernel->prepare();
  return run_kernel(gpu, built, *kernel);
}

class CudaDnn : public LibraryTest<test::FakeDnn> {
 protected:
  CudaDnn() : LibraryTest("RIDGE_CUDNN", RIDGE_FAKE_CUDNN, test::kFakeDnnEntry) {}
  // Against the reference, by the tolerance table.
  void expect_right(CaseBuilder& built, const std::string& where);

  test::FakeDnn& dnn_ = library_;
};

void CudaDnn::expect_right(CaseBuilder& built, const std::string& where) {
  const auto reference = make_backend("ref");
  const NamedTensors got = run_node(device(), built);
  const Graph lone = lone_node(node_of(built));
  NamedTensors operands;
  for (const auto& [name, tensor] : built.tensors()) operands.emplace(name.substr(1), tensor);
  const NamedTensors want = evaluate(lone, *reference, operands);
  for (const auto& [index, tensor] : want) {
    const Tensor& made = got.at("y" + index);
    double allowed = tolerance(tensor.type().dtype, OpClass::kContraction);
    // Attention rounds what it passes on, as its plain form does; twice, for another order of sums.
    if (!difference(made, tensor, allowed).empty())
      allowed = std::max(allowed, 2 * plain_error(lone, operands, want, *reference));
    EXPECT_EQ(difference(made, tensor, allowed), "") << index << " of " << where;
  }
  expect_all_clean();
}

// ---- cases ----

// The layers of the examples, with fewer channels and pixels.
const std::vector<ConvolutionForm>& geometries() {
  static const std::vector<ConvolutionForm> kAll = {
      {"first of ResNet", {2, 15, 15, 3}, {7, 7, 3, 4}, 2, 3},
      {"3x3 of ResNet", {2, 6, 6, 4}, {3, 3, 4, 5}, 1, 1},
      {"3x3 of ResNet, halving", {2, 7, 6, 4}, {3, 3, 4, 6}, 2, 1},
      {"shortcut of ResNet", {2, 6, 6, 4}, {1, 1, 4, 7}, 2},
      {"depthwise of MobileNet", {2, 6, 7, 6}, {3, 3, 1, 6}, 1, 1, 1, 6},
      {"depthwise of MobileNet, halving", {2, 7, 7, 6}, {3, 3, 1, 6}, 2, 1, 1, 6},
      {"1x1 of MobileNet", {2, 4, 4, 6}, {1, 1, 6, 3}},
      {"dilated", {1, 9, 8, 3}, {3, 3, 3, 4}, 1, 2, 2},
      {"grouped", {2, 5, 5, 6}, {3, 3, 3, 4}, 1, 1, 1, 2},
      {"oblong", {1, 5, 9, 2}, {2, 4, 2, 3}, 1, 1},
      {"one channel to one", {2, 5, 5, 1}, {3, 3, 1, 1}, 1, 1},
      {"1x1 to one channel", {2, 3, 3, 5}, {1, 1, 5, 1}},
  };
  return kAll;
}

CaseBuilder convolution_case(const ConvolutionForm& form,
                             int part,
                             DType dtype,
                             uint64_t seed = 1) {
  CaseBuilder b(dtype, seed);
  b.finish({convolution_of(form, part, [&](const Shape& shape) { return b.input(shape); })});
  return b;
}

const AttentionCase kForms[] = {
    {2, 3, 6, 6, 8, 8, true, {}, true},
    {2, 2, 5, 5, 16, 16, false, {}, true},
    {2, 2, 4, 7, 8, 16},
    {1, 3, 7, 4, 16, 8, true},
    {1, 1, 1, 3, 8, 8},
};

// ---- tests ----

TEST_F(CudaDnn, ConvolutionsAreThoseOfTheReference) {
  uint64_t seed = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16})
    for (const ConvolutionForm& geometry : geometries())
      for (int part = 0; part < 3; ++part) {
        CaseBuilder built = convolution_case(geometry, part, dtype, ++seed);
        start_in_turn(seed);
        // The workspace is spoilt by the plan: weights must lie elsewhere in it.
        dnn_.set_engines(
            {{.index = 7, .workspace_bytes = seed % 2 == 0 ? size_t{0} : size_t{1000}}}, {});
        expect_right(built, fmt::format("{}, part {}, {}", geometry.what, part, name_of(dtype)));
        if (HasFailure()) return;
      }
}

TEST_F(CudaDnn, RandomConvolutionsAreThoseOfTheReference) {
  for (uint64_t seed = 1; seed <= static_cast<uint64_t>(test::cases(60)); ++seed) {
    Random random(seed);
    ConvolutionForm g{"random", {}, {}};
    g.groups = random.integer(1, 3);
    g.stride = random.integer(1, 3), g.dilation = random.integer(1, 2);
    g.padding = random.integer(0, 2);
    g.w = {random.integer(1, 3),
           random.integer(1, 3),
           random.integer(1, 3),
           g.groups * random.integer(1, 3)};
    const auto least = [&](size_t i) { return g.dilation * (g.w[i] - 1) + 1; };
    g.x = {random.integer(1, 3),
           least(0) + random.integer(0, 4),
           least(1) + random.integer(0, 4),
           g.groups * g.w[2]};
    start(Schedule::kRandom, seed);
    dnn_.set_engines({{.index = 7, .workspace_bytes = 64 * (seed % 3)}}, {});
    constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
    CaseBuilder built =
        convolution_case(g, static_cast<int>(random.integer(0, 2)), kDTypes[seed % 3], seed);
    expect_right(built, fmt::format("seed {}", seed));
    if (HasFailure()) return;
  }
}

TEST_F(CudaDnn, AttentionsAreThoseOfTheReference) {
  for (const DType dtype : {DType::kBF16, DType::kF16})
    for (const AttentionCase& form : kForms) {
      CaseBuilder both[] = {attention_of(form, dtype), gradient_of(form, dtype)};
      for (CaseBuilder& built : both) {
        start(Schedule::kAtLast);
        dnn_.set_engines({{.index = 13, .workspace_bytes = 512}}, {});
        expect_right(built, fmt::format("{}, {} queries", name_of(dtype), form.queries));
        if (HasFailure()) return;
      }
    }
}

TEST_F(CudaDnn, AWrongResultIsSeen) {
  CaseBuilder built = convolution_case(geometries()[1], 0, DType::kF32);
  dnn_.is_wrong = true;
  const NamedTensors got = run_node(device(), built);
  const NamedTensors want = evaluate(built.graph(), *make_backend("ref"), built.tensors());
  EXPECT_NE(difference(got.at("y0"), want.at("y0"), tolerance(DType::kF32, OpClass::kContraction)),
            "");
}

std::vector<std::string> names_of(const std::vector<DnnChoice>& choices) {
  std::vector<std::string> names;
  for (const DnnChoice& each : choices) names.push_back(each.choice.name);
  return names;
}

TEST_F(CudaDnn, ChoicesAreItsPlans) {
  const auto dnn = make_dnn(device());
  CaseBuilder half = convolution_case(geometries()[1], 0, DType::kBF16);
  dnn_.set_engines(
      {
          {.index = 25, .numerical_notes = {4}},         // other bits in another run
          {.index = 26, .numerical_notes = {0, 2}},      // sums in 16 bits
          {.index = 27, .numerical_notes = {1}},         // rounds what it is given
          {.index = 28, .plan_status = 3000},            // does not do it after all
          {.index = 29, .workspace_bytes = 300u << 20},  // wants too much
          {.index = 62, .knobs = {{13, 1}, {2, 5}}, .numerical_notes = {0}},
          {.index = 62, .knobs = {{2, 5}, {13, 1}}, .numerical_notes = {0}},  // again
          {.index = 71, .behavior_notes = {0}},                               // would be compiled
          {.index = 57},
          {.index = 58},
      },
      {{.index = 1}});
  const std::vector<DnnChoice> choices = dnn_choices(*dnn, node_of(half));
  EXPECT_EQ(names_of(choices), (std::vector<std::string>{"cudnn_eng62_k2=5_k13=1", "cudnn_eng57"}));
  for (size_t i = 0; i < choices.size(); ++i)
    EXPECT_EQ(choices[i].choice.bits, kDnnBits + static_cast<int>(i));
  // Tensor cores would round factors of f32; then there is the fallback.
  CaseBuilder full = convolution_case(geometries()[1], 0, DType::kF32);
  dnn_.set_engines({{.index = 67, .numerical_notes = {0}}}, {{.index = 0, .numerical_notes = {9}}});
  const std::vector<DnnChoice> fallbacks = dnn_choices(*dnn, node_of(full));
  EXPECT_EQ(names_of(fallbacks), std::vector<std::string>{"cudnn_eng0"});
}

// With any cuDNN 9, and by what the heuristics propose; what wants too much workspace stays with
// kernels of ours, and does not keep the other half from the library.
TEST_F(CudaDnn, AttentionIsPlannedByEveryVersion) {
  CaseBuilder forward = attention_of(kForms[0], DType::kBF16);
  CaseBuilder backward = gradient_of(kForms[0], DType::kBF16);
  for (const size_t version : {90000u, 92801u}) {
    dnn_.version = version;
    dnn_.set_engines({{.index = 6, .knobs = {{24, 2}}, .workspace_bytes = size_t{1} << 32}}, {});
    const auto dnn = make_dnn(device());
    const std::vector<std::string> want{"cudnn_eng6_k24=2"};
    EXPECT_EQ(names_of(dnn_choices(*dnn, node_of(forward))), want);
    EXPECT_EQ(names_of(dnn_choices(*dnn, node_of(backward))), want);
    dnn_.set_engines({{.index = 6, .workspace_bytes = (size_t{1} << 32) + 1}}, {});
    EXPECT_TRUE(dnn_choices(*dnn, node_of(backward)).empty());
  }
}

TEST_F(CudaDnn, OtherNodesHaveNone) {
  const auto dnn = make_dnn(device());
  const auto has_none = [&](CaseBuilder built) {
    return dnn_choices(*dnn, node_of(built)).empty();
  };
  CaseBuilder sum(DType::kF32, 1);
  const Value x = sum.input({4, 4});
  sum.finish({x + x});
  EXPECT_TRUE(has_none(std::move(sum)));
  EXPECT_TRUE(has_none(convolution_case(geometries()[1], 0, DType::kF64)));
  EXPECT_TRUE(has_none(attention_of(kForms[0], DType::kF32)));
  // Rows of 9 numbers begin where no copy of 16 bytes can.
  EXPECT_TRUE(has_none(attention_of({1, 1, 4, 4, 9, 8}, DType::kBF16)));
  EXPECT_TRUE(has_none(gradient_of({1, 1, 1, 1, 8, 8}, DType::kBF16)));
  EXPECT_TRUE(has_none(attention_of({1, 1, 4, 4, 8, 8, false, {1, 1, 4, 4}}, DType::kBF16)));
  // Paddings that differ between the sides.
  CaseBuilder uneven(DType::kF32, 1);
  Conv2d op;
  op.window.padding = {0, 0, 1, 1};
  const Value image = uneven.input({1, 4, 4, 2}), w = uneven.input({2, 2, 2, 3});
  uneven.finish({add_node(std::move(op), {image, w})});
  EXPECT_TRUE(has_none(std::move(uneven)));
  // The library proposes no engine.
  dnn_.set_engines({}, {});
  EXPECT_TRUE(has_none(convolution_case(geometries()[1], 0, DType::kF32)));
}

TEST_F(CudaDnn, ASteadyLaunchMakesOneCall) {
  const DeviceRef gpu = device();
  const auto dnn = make_dnn(gpu);
  // A convolution of one channel to one moves no weights.
  CaseBuilder built = convolution_case(geometries()[10], 0, DType::kF32);
  const auto kernel =
      make_dnn_kernel(dnn, node_of(built), dnn_choices(*dnn, node_of(built)).at(0), nullptr);
  const Arena arena(gpu, 4 * 1024);
  const auto at = [&](size_t i) { return reinterpret_cast<void*>(arena.at(i * 1024, 1024)); };
  const void* const inputs[] = {at(0), at(1)};
  void *const outputs[] = {at(2)}, *const others[] = {at(3)};
  TestStream stream(gpu);
  kernel->launch(stream, {inputs, outputs, nullptr});
  dnn_.clear_log();
  fake_.clear_log();
  for (int i = 0; i < 5; ++i) kernel->launch(stream, {inputs, outputs, nullptr});
  EXPECT_EQ(dnn_.log().size(), 5u);
  EXPECT_EQ(lines({"cuLaunchKernel"}).size(), 5u);
  EXPECT_EQ(lines({"cuMemAlloc_v2", "cuStreamSynchronize", "cuCtxSynchronize"}).size(), 0u);
  // The library gets other addresses when they change; other streams as well.
  kernel->launch(stream, {inputs, others, nullptr});
  EXPECT_GT(dnn_.log().size(), 6u);
  TestStream other(gpu);
  dnn_.clear_log();
  kernel->launch(other, {inputs, others, nullptr});
  EXPECT_EQ(dnn_.log(),
            (std::vector<std::string>{"cudnnSetStream", "cudnnBackendExecute engine 1"}));
  other.synchronize();
  stream.synchronize();
}

TEST_F(CudaDnn, EachCallMayFail) {
  for (const bool is_attention : {false, true}) {
    CaseBuilder built = is_attention ? gradient_of(kForms[0], DType::kBF16)
                                     : convolution_case(geometries()[1], 2, DType::kBF16);
    start(Schedule::kAtLast);
    expect_each_call_may_fail<DnnError>(5000, [&] {
      dnn_.set_engines({{.index = 13, .knobs = {{2, 3}}}}, {});
      run_node(device(), built);
    });
  }
}

TEST_F(CudaDnn, AnErrorSaysWithWhat) {
  CaseBuilder built = convolution_case(geometries()[1], 0, DType::kF32);
  dnn_.fail("cudnnBackendExecute", 1, 5000);
  EXPECT_EQ(
      test::user_error([&] { run_node(device(), built); }),
      "cuDNN 9.28.1: cudnnBackendExecute(conv2d of f32 [2,6,6,4] with [3,3,4,5] to "
      "[2,6,6,5], by cudnn_eng1) failed: what the library says "
      "(CUDNN_STATUS_EXECUTION_FAILED); start again from the last checkpoint (--resume auto)");
}

TEST_F(CudaDnn, AMissingLibraryIsOneClearError) {
  ::setenv("RIDGE_CUDNN", "/nowhere/libcudnn.so.9", 1);
  EXPECT_THAT(test::user_error([] { DnnLibrary::open(); }),
              has("[cudnn] cannot open the library of convolution and attention",
                  "looked for /nowhere/libcudnn.so.9; install it by `pip install "
                  "nvidia-cudnn-cu13`"));
  ::setenv("RIDGE_CUDNN", "/usr/lib/x86_64-linux-gnu/libm.so.6", 1);
  EXPECT_THAT(test::user_error([] { DnnLibrary::open(); }),
              has("is no cuDNN 9: it has no cudnnCreate"));
  ::setenv("RIDGE_CUDNN", RIDGE_FAKE_CUDNN, 1);
  EXPECT_THAT(test::user_error([] { DnnLibrary::open(12040); }),
              has("is of CUDA 13, whose kernels NVIDIA's driver, which is for CUDA 12.4"));
}

}  // namespace
}  // namespace ridge::cuda
