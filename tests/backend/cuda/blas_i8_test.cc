// Matrix products of bytes by cuBLASLt, over a stand-in that multiplies on the host, and refuses
// what NVIDIA's reference says that the library does.
#include "ridge/backend/cuda/blas/matmul_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "tests/backend/cuda/blas_test.h"
#include "tests/backend/cuda_kernels/byte_product_forms.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"

namespace ridge::cuda {
namespace {

using test::byte_product_case;
using test::ByteProductForm;
using test::has;

class CudaBlasI8 : public CudaBlas {
 protected:
  // The node by choice number `choice`; with `packs`, b is packed before.
  NamedTensors run(CaseBuilder& built, bool packs = false, size_t choice = 0) const {
    const DeviceRef gpu = device();
    const Node& node = node_of(built);
    const auto blas = make_blas(gpu);
    const PlainKernels plain(gpu);
    const auto kernel =
        make_blas_i8_kernel(blas, node, blas_i8_choices(*blas, node).at(choice), plain, packs);
    std::map<size_t, Tensor> others;
    if (packs) others.emplace(MatMulI8::kB, packed(built));
    return run_kernel(gpu, built, *kernel, others);
  }

  static Tensor packed(CaseBuilder& built) {
    const Node& node = node_of(built);
    const PackedOperand operand = blas_i8_packed(node).at(0);
    EXPECT_EQ(operand.input, MatMulI8::kB);
    Graph graph("pack");
    const Value b = node.inputs[operand.input];
    graph.add_output("packed", operand.pack(input(graph, "b", b.type())));
    NamedTensors made = evaluate(graph,
                                 *make_backend("ref"),
                                 {{"b", built.tensors().at(b.node->op_as<Input>().input_name)}});
    return std::move(made.at("packed"));
  }

  static std::string difference_from_reference(CaseBuilder& built, const NamedTensors& got) {
    const auto reference = make_backend("ref");
    return bit_difference(got, evaluate(built.graph(), *reference, built.tensors()));
  }

  std::vector<std::string> names(CaseBuilder built) const {
    std::vector<std::string> all;
    for (const BlasChoice& each : blas_i8_choices(*make_blas(device()), node_of(built)))
      all.push_back(each.choice.name);
    return all;
  }
};

TEST_F(CudaBlasI8, RandomNodesHaveTheBitsOfTheReference) {
  int packed = 0, few = 0;
  for (uint64_t seed = 0; seed < static_cast<uint64_t>(test::cases(150)); ++seed) {
    const ByteProductForm form = test::random_byte_product(seed);
    CaseBuilder built = byte_product_case(form, seed);
    start_in_turn(seed);
    // Its workspace is spoilt by the product: what the loops left must lie elsewhere.
    blas_.set_algorithms({{.id = 7, .workspace_bytes = seed % 2 == 0 ? size_t{0} : size_t{1000}}});
    const bool has_one_product = form.shares_b || numel(form.leading) == 1;
    if (has_one_product && seed % 5 == 0) blas_.set_fewest_columns_of_i8(32);
    few += has_one_product && seed % 5 == 0 && form.m * numel(form.leading) < 32;
    EXPECT_EQ(difference_from_reference(built, run(built)), "") << seed;
    if (form.shares_b) {
      EXPECT_EQ(difference_from_reference(built, run(built, /*packs=*/true)), "") << seed;
      ++packed;
    }
    expect_all_clean();
    if (HasFailure()) return;
  }
  EXPECT_GT(packed, 0);
  EXPECT_GT(few, 0);
}

TEST_F(CudaBlasI8, TellsTheLibraryWhatIsMultiplied) {
  const auto told = [&](const ByteProductForm& form) {
    CaseBuilder built = byte_product_case(form);
    blas_.clear_log();
    run(built);
    return library_lines("cublasLtMatmul");
  };
  using Lines = std::vector<std::string>;
  // Column-major: the first matrix is our second, as (n, k), transposed.
  EXPECT_EQ(told({.m = 5, .n = 8, .k = 12}),
            Lines{"cublasLtMatmul compute 72 TN 12x8 12x5 -> 8x5, types 3 3 10, 1 at a time"});
  // Sides are padded, and the rows of all items that share b are one item's.
  EXPECT_EQ(told({.m = 5, .n = 9, .k = 13, .leading = {3}}),
            Lines{"cublasLtMatmul compute 72 TN 16x16 16x15 -> 16x15, types 3 3 10, 1 at a time"});
  EXPECT_EQ(told({.m = 5, .n = 8, .k = 12, .leading = {3}, .shares_b = false}),
            Lines{"cublasLtMatmul compute 72 TN 12x8 12x5 -> 8x5, types 3 3 10, 3 at a time"});
}

TEST_F(CudaBlasI8, ChoicesAreItsAlgorithmsWithTheBitsOfTheCpu) {
  blas_.set_algorithms({
      {.id = 21, .tile = 18, .stages = 15},
      {.id = 21, .tile = 18, .split_k = 3, .reduction = 2, .workspace_bytes = 4096},
      {.id = 21, .tile = 18, .split_k = 3, .reduction = 1},
      {.id = 64, .tile = 20, .state = 15},
  });
  CaseBuilder built = byte_product_case({});
  EXPECT_EQ(
      names(byte_product_case({})),
      (std::vector<std::string>{"cublaslt_i8_21_tile18_stages15", "cublaslt_i8_21_tile18_split3"}));
  for (const BlasChoice& each : blas_i8_choices(*make_blas(device()), node_of(built)))
    EXPECT_EQ(each.choice.bits, 0);
  EXPECT_EQ(difference_from_reference(built, run(built, false, 1)), "");
}

TEST_F(CudaBlasI8, FewRowsAreMoreWhereTheLibraryHasNothingForThem) {
  blas_.set_fewest_columns_of_i8(17);
  EXPECT_EQ(names(byte_product_case({.m = 16})),
            std::vector<std::string>{"cublaslt_i8_1_tile1_rows32"});
  EXPECT_EQ(names(byte_product_case({.m = 17})), std::vector<std::string>{"cublaslt_i8_1_tile1"});
  EXPECT_TRUE(names(byte_product_case({.leading = {3}, .shares_b = false})).empty());
  for (const DType a : {DType::kI8, DType::kU8}) {
    CaseBuilder built = byte_product_case({.m = 3, .transpose_a = true, .a = a});
    EXPECT_EQ(difference_from_reference(built, run(built)), "");
  }
}

TEST_F(CudaBlasI8, OtherNodesHaveNone) {
  CaseBuilder b(DType::kI8, 1);
  const Value x = b.input({4, 4});
  b.finish({x + x});
  EXPECT_TRUE(names(std::move(b)).empty());
  // A node that the library has nothing for.
  blas_.set_algorithms({});
  EXPECT_TRUE(names(byte_product_case({})).empty());
}

TEST_F(CudaBlasI8, RefusalsSayWhy) {
  const auto refusal = [](const ByteProductForm& form) {
    CaseBuilder built = byte_product_case(form);
    return blas_i8_refusal(node_of(built));
  };
  EXPECT_EQ(refusal({.k = 2}), "");
  EXPECT_EQ(refusal({.k = 1}), "has a depth of one, which is no row of a loop");
  EXPECT_EQ(refusal({.m = 1, .n = 1, .k = 131'071}), "");
  EXPECT_EQ(refusal({.m = 1, .n = 1, .k = 131'072}),
            "has a depth of 131072; sums of more than 131071 products may leave 32 bits");
  EXPECT_TRUE(names(byte_product_case({.m = 1, .n = 1, .k = 131'072})).empty());
}

// The least and the largest sums that are not refused.
TEST_F(CudaBlasI8, TheDeepestSumsAreExact) {
  CaseBuilder built = byte_product_case(
      {.m = 2, .n = 4, .k = 131'071, .transpose_b = true, .a = DType::kI8, .least = 1});
  EXPECT_EQ(difference_from_reference(built, run(built)), "");
}

TEST_F(CudaBlasI8, EachCallMayFail) {
  CaseBuilder built = byte_product_case({.leading = {2}, .shares_b = false, .to = DType::kF32});
  expect_each_call_may_fail<BlasError>(
      13, [&] { run(built); }, "cublasLtMatmulAlgoConfigGetAttribute");
}

TEST_F(CudaBlasI8, AnErrorSaysWithWhat) {
  CaseBuilder built = byte_product_case({.m = 5, .n = 4, .k = 12});
  blas_.fail("cublasLtMatmul", 1, 13);
  EXPECT_THAT(test::user_error([&] { run(built); }),
              has("cublasLtMatmul(5 x 12 transposed x 4, i8 to i32, 1 at a time, by "
                  "cublaslt_i8_1_tile1) failed"));
}

}  // namespace
}  // namespace ridge::cuda
