// Matrix products by cuBLASLt, over a stand-in that multiplies on the host.
#include "tests/backend/cuda/blas_test.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/run/backends.h"
#include "tests/backend/cuda_kernels/product_forms.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::FakeAlgorithm;
using test::has;
using test::product_case;
using test::ProductForm;
using test::Random;

CaseBuilder random_case(uint64_t seed) {
  Random random(seed);
  constexpr DType kDTypes[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kF64};
  ProductForm form{.dtype = kDTypes[random.integer(0, 3)]};
  const int64_t m = random.integer(1, 30), n = random.integer(1, 30), k = random.integer(1, 40);
  const bool ta = random.chance(0.5), tb = random.chance(0.5);
  form.transpose_a = ta, form.transpose_b = tb;
  form.a = ta ? Shape{k, m} : Shape{m, k}, form.b = tb ? Shape{n, k} : Shape{k, n};
  if (random.chance(0.5)) {
    const int64_t batch = random.integer(1, 5);
    for (Shape* each : {&form.a, &form.b}) each->insert(each->begin(), batch);
  }
  if (form.dtype == DType::kF32 && random.chance(0.8)) {
    form.tf32 = random.chance(0.25);
    if (!form.tf32) form.round_to = random.chance(0.5) ? DType::kBF16 : DType::kF16;
  }
  form.f32_result = size_of(form.dtype) == 2 && random.chance(0.5);
  return product_case(form, seed);
}

TEST_F(CudaBlas, RandomNodesAreThoseOfTheReference) {
  const auto reference = make_backend("ref");
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(test::cases(120)); ++seed) {
    CaseBuilder built = random_case(seed);
    start_in_turn(seed);
    // Its workspace is spoilt by the product: what was rounded must lie elsewhere.
    blas_.set_algorithms({{.id = 7, .workspace_bytes = seed % 2 == 0 ? size_t{0} : size_t{1000}}});
    const NamedTensors got = run_node(device(), built);
    const NamedTensors wanted = evaluate(built.graph(), *reference, built.tensors());
    const Tensor& want = wanted.at("y0");
    const Node& node = node_of(built);
    EXPECT_EQ(difference(got.at("y0"), want, tolerance(node, want.type().dtype)), "") << seed;
    expect_all_clean();
    if (HasFailure()) return;
  }
}

TEST_F(CudaBlas, TellsTheLibraryWhatIsMultiplied) {
  const auto told = [&](CaseBuilder built) {
    blas_.clear_log();
    run_node(device(), built);
    return library_lines("cublasLtMatmul");
  };
  using Lines = std::vector<std::string>;
  // Column-major: the first matrix is our second, (4, 7) as (7, 4), transposed.
  EXPECT_EQ(told(product_case({{3, 5, 7}, {3, 4, 7}, false, true})),
            Lines{"cublasLtMatmul compute 68 TN 7x4 7x5 -> 4x5, types 0 0 0, 3 at a time"});
  EXPECT_EQ(told(product_case({.a = {3, 5, 7}, .b = {3, 4, 7}, .transpose_b = true, .tf32 = true})),
            Lines{"cublasLtMatmul compute 77 TN 7x4 7x5 -> 4x5, types 0 0 0, 3 at a time"});
  EXPECT_EQ(told(product_case({.a = {5, 7}, .b = {7, 4}, .round_to = DType::kBF16})),
            Lines{"cublasLtMatmul compute 68 NN 4x7 7x5 -> 4x5, types 14 14 0, 1 at a time"});
}

TEST_F(CudaBlas, ChoicesAreItsAlgorithms) {
  const auto blas = make_blas(device());
  CaseBuilder built = product_case({{64, 64}, {64, 64}});
  const Node& node = node_of(built);
  blas_.set_algorithms({
      {.id = 67, .tile = 20, .stages = 8, .cluster = 2},
      {.id = 67, .tile = 20, .split_k = 4, .reduction = 2, .stages = 8, .workspace_bytes = 4096},
      // Parts are added up by whichever block comes first, or rounded before.
      {.id = 67, .tile = 20, .split_k = 4, .reduction = 1, .stages = 8, .workspace_bytes = 64},
      {.id = 67, .tile = 20, .split_k = 4, .reduction = 4, .stages = 8},
      {.id = 21, .tile = 18, .state = 15},
      {.id = 21, .tile = 18, .workspace_bytes = size_t{1} << 30},
      {.id = 67, .tile = 20, .stages = 8, .cluster = 2},  // again
      {.id = 13, .tile = 5, .swizzle = 1, .custom = 3, .inner = 9},
  });
  std::vector<std::string> names;
  std::vector<int> bits;
  for (const BlasChoice& each : blas_choices(*blas, node)) {
    names.push_back(each.choice.name);
    bits.push_back(each.choice.bits);
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"cublaslt_67_tile20_stages8_cluster2",
                                      "cublaslt_67_tile20_stages8_split4",
                                      "cublaslt_13_tile5_swizzle1_custom3_inner9"}));
  EXPECT_EQ(bits, (std::vector<int>{kBlasBits, kBlasBits + 1, kBlasBits + 2}));
  EXPECT_EQ(blas_choices(*blas, node)[1].workspace_bytes, 4096u);
  CaseBuilder coarse = product_case({.a = {64, 64}, .b = {64, 64}, .tf32 = true});
  EXPECT_EQ(blas_choices(*blas, node_of(coarse))[0].choice.name,
            "cublaslt_tf32_67_tile20_stages8_cluster2");
  // The library gets the allowed reduction schemes, too, and the alignment that it can rely on.
  const std::vector<std::string> told = library_lines("cublasLtMatmulPreferenceSetAttribute");
  EXPECT_EQ(told.at(1), "cublasLtMatmulPreferenceSetAttribute 3=2");
  for (size_t i = 2; i < 6; ++i)
    EXPECT_EQ(told.at(i), fmt::format("cublasLtMatmulPreferenceSetAttribute {}=64", i + 3));
}

TEST_F(CudaBlas, OtherNodesHaveNone) {
  const auto blas = make_blas(device());
  CaseBuilder b(DType::kF32, 1);
  const Value x = b.input({4, 4});
  b.finish({x + x});
  EXPECT_TRUE(blas_choices(*blas, *b.graph().outputs()[0].value.node).empty());
  // A node that the library has nothing for.
  blas_.set_algorithms({});
  CaseBuilder built = product_case({{4, 4}, {4, 4}});
  EXPECT_TRUE(blas_choices(*blas, node_of(built)).empty());
}

TEST_F(CudaBlas, ALaunchMakesOneCall) {
  const DeviceRef gpu = device();
  const auto blas = make_blas(gpu);
  CaseBuilder built = product_case({{8, 8}, {8, 8}});
  const Node& node = node_of(built);
  const auto kernel = make_blas_kernel(blas, node, blas_choices(*blas, node).at(0), nullptr);
  const Arena arena(gpu, 3 * 256);
  const auto at = [&](size_t i) { return reinterpret_cast<void*>(arena.at(i * 256, 256)); };
  const void* const inputs[] = {at(0), at(1)};
  void* const outputs[] = {at(2)};
  TestStream stream(gpu);
  blas_.clear_log();
  fake_.clear_log();
  for (int i = 0; i < 5; ++i) kernel->launch(stream, {inputs, outputs, nullptr});
  EXPECT_EQ(blas_.log().size(), 5u);
  EXPECT_EQ(lines({"cuLaunchKernel"}).size(), 5u);
  EXPECT_EQ(lines({"cuMemAlloc_v2", "cuStreamSynchronize", "cuCtxSynchronize"}).size(), 0u);
  stream.synchronize();
}

TEST_F(CudaBlas, EachCallMayFail) {
  CaseBuilder built = product_case({.a = {2, 5, 7}, .b = {2, 7, 4}, .round_to = DType::kBF16});
  expect_each_may_fail(built);
}

TEST_F(CudaBlas, AnErrorSaysWithWhat) {
  CaseBuilder built = product_case({{5, 7}, {4, 7}, false, true});
  blas_.fail("cublasLtMatmul", 1, 13);
  EXPECT_EQ(test::user_error([&] { run_node(device(), built); }),
            "cuBLASLt 13.1.0: cublasLtMatmul(5 x 7 transposed x 4, f32 to f32, 1 at a time, by "
            "cublaslt_1_tile1) failed: what the library says (CUBLAS_STATUS_EXECUTION_FAILED); "
            "start again from the last checkpoint (--resume auto)");
}

TEST_F(CudaBlas, AnotherLibraryIsOneClearError) {
  ::setenv("RIDGE_CUBLASLT", "/usr/lib/x86_64-linux-gnu/libm.so.6", 1);
  EXPECT_THAT(test::user_error([] { BlasLibrary::open(); }),
              has("is no cuBLASLt of CUDA 12 or later: it has no cublasLtCreate"));
  ::setenv("RIDGE_CUBLASLT", RIDGE_FAKE_CUBLASLT, 1);
  const std::string late = test::user_error([] { BlasLibrary::open(12040); });
  EXPECT_THAT(
      late,
      has("is of CUDA 13, whose kernels NVIDIA's driver, which is for CUDA 12.4, cannot load",
          "nvidia-cublas-cu12`"));
}

}  // namespace
}  // namespace ridge::cuda
