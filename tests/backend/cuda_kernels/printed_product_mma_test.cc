// Printed products of 16-bit factors by tensor cores, run on the CPU thread by thread, against
// their formula in f64: no element is off by more than the roundings that the kernels are to make.
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/backend/cuda/product_form.h"
#include "ridge/graph/ops/matmul.h"
#include "tests/backend/cuda_kernels/contractions.h"
#include "tests/backend/cuda_kernels/product_loops.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

using cuda::kProductForms;
using cuda::ProductCut;
using cuda::ProductForm;

struct Product {
  int64_t batches, m, n, k;
  bool transpose_a = false, transpose_b = false;
  DType dtype = DType::kBF16;
  bool f32_result = false;
};

Value add_product(const Product& p, Value a, Value b) {
  MatMul op;
  op.transpose_a = p.transpose_a, op.transpose_b = p.transpose_b;
  op.accumulate = DType::kF32;
  op.f32_result = p.f32_result;
  return add_node(std::move(op), {a, b});
}

Shape left_shape(const Product& p) {
  return p.transpose_a ? Shape{p.batches, p.k, p.m} : Shape{p.batches, p.m, p.k};
}
Shape right_shape(const Product& p) {
  return p.transpose_b ? Shape{p.batches, p.n, p.k} : Shape{p.batches, p.k, p.n};
}

CaseBuilder product_of(const Product& p, uint64_t seed = 21) {
  CaseBuilder b(p.dtype, seed);
  const Value left = b.input(left_shape(p)), right = b.input(right_shape(p));
  b.finish({add_product(p, left, right)});
  return b;
}

// The next product of Contractions::add() is printed with this cut.
ProductCut next_cut;
cuda::Printing print_cut(const Node& node) { return {cuda::print_product(node, next_cut), {}}; }

void add(Contractions& all, const Product& product, const ProductForm& form, int64_t parts = 1) {
  next_cut = {form, parts};
  all.add(product_of(product), print_cut);
}

// What rounding to nearest takes at most off a number of size 1, and off a small one.
struct Rounding {
  double relative, least;
};
Rounding rounding_of(DType dtype) {
  if (dtype == DType::kF32) return {0.0, 0.0};  // it is the sum
  return dtype == DType::kF16 ? Rounding{0x1p-11, 0x1p-25} : Rounding{0x1p-8, 0x1p-133};
}

// A sum of k products in f32 is off by k roundings of the sum of their magnitudes: k 2^-24, taken
// twice, since tensor cores cut what they add instead of rounding it.
void expect_product(CaseBuilder& built, const NamedTensors& got) {
  const Node& node = *built.graph().outputs()[0].value.node;
  const auto& op = node.op_as<MatMul>();
  const auto tensor = [&](size_t i) -> const Tensor& {
    return built.tensors().at(node.inputs[i].node->op_as<Input>().input_name);
  };
  const Tensor &a = tensor(0), &b = tensor(1), &y = got.at("y0");
  const Shape& shape = node.outputs[0].shape;
  const int64_t batches = shape[0], m = shape[1], n = shape[2];
  const int64_t k = a.type().shape[op.transpose_a ? 1 : 2];
  const Rounding rounding = rounding_of(node.outputs[0].dtype);
  for (int64_t item = 0; item < batches; ++item)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double sum = 0.0, size = 0.0;
        for (int64_t d = 0; d < k; ++d) {
          const double term = a.at(item * m * k + (op.transpose_a ? d * m + i : i * k + d)) *
                              b.at(item * k * n + (op.transpose_b ? j * k + d : d * n + j));
          sum += term, size += std::fabs(term);
        }
        const double off = size * static_cast<double>(k + 2) * 0x1p-23;
        const double most = off + (std::fabs(sum) + off) * rounding.relative + rounding.least;
        const double found = y.at((item * m + i) * n + j);
        ASSERT_LE(std::fabs(found - sum), most) << "row " << i << ", column " << j << " of item "
                                                << item << ": " << found << ", not " << sum;
      }
}

constexpr bool kBoth[] = {false, true};

// Each form of a tile, with lines that are copied by 16, 8, 4 and 2 bytes; more than a tile both
// ways, less than one, and more steps than are in shared memory at a time.
TEST(PrintedProductMma, EachFormIsNearItsFormula) {
  Contractions all;
  size_t number = 0;
  for (const ProductForm& form : kProductForms)
    for (const bool ta : kBoth)
      for (const bool tb : kBoth) {
        const int64_t odd = static_cast<int64_t>(number % 4), even = int64_t{8} >> odd;
        const bool is_small = form.rows == 64;
        const int64_t m = (is_small ? 64 : 128) + even, n = is_small ? 64 + even : 2 * even;
        const DType dtype = number++ % 2 == 0 ? DType::kBF16 : DType::kF16;
        add(all, {1, m, n, 32 * form.stages + 32 + even, ta, tb, dtype}, form);
        add(all, {2, 3, 7, 45, ta, tb, dtype, true}, form);
        if (is_full_scale()) add(all, {2, 2 * m + 1, n + 128, 70, ta, tb, dtype, ta}, form);
      }
  all.expect(expect_product);
}

// Every lane's place: sizes that are whole tiles, with results of both dtypes.
TEST(PrintedProductMma, WholeTilesHaveNoBankConflicts) {
  Contractions all;
  for (const ProductForm& form : kProductForms)
    for (const bool ta : kBoth)
      for (const bool tb : kBoth)
        add(all,
            {1, form.rows, form.columns, 32 + (form.rows == 64 ? 160 : 0), ta, tb, DType::kF16, ta},
            form);
  all.expect(expect_product);
  EXPECT_EQ(all.bank_conflicts(), 0u);
}

TEST(PrintedProductMma, SmallOddSizes) {
  Contractions all;
  const ProductForm& small = kProductForms[2];
  constexpr int64_t kSizes[] = {1, 7, 8, 17, 127, 129};
  size_t number = 0;
  for (const int64_t m : kSizes)
    for (const int64_t n : kSizes) {
      const size_t turn = number++;
      if (!is_full_scale() && turn % 3 != 0) continue;
      const int64_t k = kSizes[(turn * 5 + turn / 6) % std::size(kSizes)];
      add(all,
          {1, m, n, k, turn % 2 == 0, turn % 4 > 1, turn % 5 == 0 ? DType::kF16 : DType::kBF16},
          small);
    }
  all.expect(expect_product);
}

// Depths that are cut into parts, the last of them shorter, and long ones.
TEST(PrintedProductMma, PartsOfTheDepthAreAddedUp) {
  Contractions all;
  const ProductForm& small = kProductForms[2];
  add(all, {1, 20, 24, 3001, true, false, DType::kBF16, true}, small, 5);
  add(all, {3, 17, 33, 500, false, true, DType::kF16}, small, 8);
  add(all, {1, 65, 8, 96, false, false, DType::kBF16}, small, 3);
  add(all, {1, 5, 9, 2000, true, true}, kProductForms[1], 2);
  EXPECT_EQ(all.kernel(0).launches.size(), 2u);
  EXPECT_EQ(all.kernel(0).workspace_bytes, 5u * 20 * 24 * 4);
  all.expect(expect_product);
}

// As chosen by the model for a device: the same kernels, by their names.
TEST(PrintedProductMma, AsTheBackendPrintsThem) {
  Contractions all;
  for (const Product& each : {Product{1, 64, 96, 32},
                              Product{5, 40, 40, 40, false, true},
                              Product{1, 32, 300, 1000, true, false, DType::kF16, true},
                              Product{1, 1, 257, 513, false, true}})
    all.add(product_of(each), cuda::print_mma_kernel);
  all.expect(expect_product);
}

// Infinities and NaN reach their row or column and nothing else, also beside an edge that is filled
// with zeros.
TEST(PrintedProductMma, NumbersThatAreNotFinite) {
  Contractions all;
  for (const double special : {static_cast<double>(INFINITY), static_cast<double>(NAN)})
    for (const int64_t line : {24, 21}) {
      const Product p{1, 37, line, 45, false, false, DType::kBF16};
      CaseBuilder b(p.dtype, 5);
      std::vector<double> left(static_cast<size_t>(p.m * p.k), 0.5);
      std::vector<double> right(static_cast<size_t>(p.k * p.n), 0.25);
      left[static_cast<size_t>(36 * p.k + 44)] = special;
      right[3] = special;
      b.finish({add_product(
          p, b.given({p.dtype, left_shape(p)}, left), b.given({p.dtype, right_shape(p)}, right))});
      next_cut = {kProductForms[2], 1};
      all.add(std::move(b), print_cut);
    }
  all.expect([](CaseBuilder& built, const NamedTensors& got) {
    const NamedTensors wanted = evaluate(built.graph(), *make_backend("ref"), built.tensors());
    const Tensor &y = got.at("y0"), &want = wanted.at("y0");
    for (int64_t i = 0; i < y.type().elements(); ++i) {
      EXPECT_EQ(std::isnan(y.at(i)), std::isnan(want.at(i))) << i;
      if (std::isinf(want.at(i))) {
        EXPECT_EQ(y.at(i), want.at(i)) << i;
      }
    }
  });
}

// ---- with loops ----

// Whole numbers: products and their sums are exact in any order, and in 16 bits, so that what a
// loop makes of them has the bits of the CPU.
Value whole(CaseBuilder& b, TensorType type, int64_t most) {
  std::vector<double> values(static_cast<size_t>(type.elements()));
  for (double& x : values) x = static_cast<double>(b.random().integer(-most, most));
  return b.given(std::move(type), values);
}

enum class Loop { kBiasAndGelu, kBiasAndSum, kSlope };

CaseBuilder loop_of(const Product& p, Loop loop) {
  CaseBuilder b(p.dtype, 31);
  MatMul op;
  op.transpose_a = p.transpose_a, op.transpose_b = p.transpose_b, op.f32_result = p.f32_result;
  const Value left = whole(b, {p.dtype, left_shape(p)}, 2);
  const Value right = whole(b, {p.dtype, right_shape(p)}, 1);
  const Shape shape{p.batches, p.m, p.n};
  std::vector<Value> others;
  if (loop == Loop::kSlope)
    others = {b.input(p.dtype, shape, -2, 2), b.input(DType::kF32, {p.batches, p.m, 1}, -2, 2)};
  else
    others = {b.input(DType::kF32, {p.n}, -2, 2)};
  if (loop == Loop::kBiasAndSum) others.push_back(b.input(DType::kF32, shape, -2, 2));
  b.finish(product_in_loop(op, left, right, others, [&](Value x, const std::vector<Value>& read) {
    if (loop == Loop::kBiasAndGelu) return bias_and_gelu(x, read, p.dtype);
    return loop == Loop::kBiasAndSum ? bias_and_sum(x, read, p.dtype) : slope(x, read, p.dtype);
  }));
  return b;
}

void expect_bits_of_cpu(CaseBuilder& built, const NamedTensors& got) {
  const NamedTensors wanted = evaluate(built.graph(), *make_backend("cpu"), built.tensors());
  EXPECT_EQ(bit_difference(got, wanted), "");
}

// Rows that are read by four, two and one; several tiles and parts; results of both dtypes.
TEST(PrintedProductMma, LoopsHaveTheBitsOfTheCpu) {
  Contractions all;
  const auto add_loop = [&](const Product& p, Loop loop, const ProductForm& form, int64_t parts) {
    next_cut = {form, parts};
    all.add(loop_of(p, loop), print_cut);
  };
  const ProductForm &large = kProductForms[0], &small = kProductForms[2];
  for (const Loop loop : {Loop::kBiasAndGelu, Loop::kBiasAndSum, Loop::kSlope}) {
    add_loop({1, 130, 264, 40, false, false}, loop, large, 1);
    add_loop({2, 67, 34, 70, true, false, DType::kF16}, loop, small, 1);
    add_loop({1, 9, 71, 33, false, true, DType::kBF16, true}, loop, kProductForms[1], 1);
    add_loop({2, 20, 36, 160, true, true, DType::kBF16, true}, loop, small, 3);
    add_loop({1, 7, 5, 70}, loop, small, 2);
  }
  all.expect(expect_bits_of_cpu);
}

TEST(PrintedProductMma, LoopsThatAreRefused) {
  CaseBuilder b(DType::kBF16, 3);
  const Value left = b.input({8, 16}), right = b.input({16, 24});
  const auto refusal = [&](const LoopBody& write) {
    const std::vector<Value> results = product_in_loop({}, left, right, {}, write);
    return cuda::print_mma_kernel(*results[0].node).refusal;
  };
  EXPECT_EQ(refusal([](Value x, const auto&) { return std::vector<Value>{x * x}; }), "");
  CaseBuilder wide(DType::kF32, 3);
  const std::vector<Value> results =
      product_in_loop({}, wide.input({8, 16}), wide.input({16, 24}), {}, [](Value x, const auto&) {
        return std::vector<Value>{x * x};
      });
  EXPECT_EQ(cuda::print_mma_kernel(*results[0].node).refusal, "has factors of f32");
}

// The products of GPT-2 124M, B = 64, T = 1024, as they are cut: whole waves of large tiles; those
// of weights, which have few tiles and a long depth, in parts.
TEST(PrintedProductMma, CutsOfGpt2) {
  const auto cut = [](int64_t m, int64_t n, int64_t k, int64_t bytes = 2) {
    return cuda::cut_product({1, m, n, k, bytes});
  };
  for (const auto& [n, k] : {std::pair<int64_t, int64_t>{3072, 768}, {2304, 768}, {768, 3072}}) {
    EXPECT_EQ(cut(65536, n, k).form.columns, 256) << n;
    EXPECT_EQ(cut(65536, n, k).parts, 1) << n;
  }
  for (const auto& [m, n] : {std::pair<int64_t, int64_t>{768, 3072}, {768, 2304}, {768, 768}}) {
    const ProductCut made = cut(m, n, 65536, 4);
    EXPECT_GT(made.parts, 1) << n;
    EXPECT_LE(made.parts * m * n * 4, int64_t{64} << 20);
    // Work for all multiprocessors, and at most a fifth of the last turn lost.
    const int64_t tasks = (m + made.form.rows - 1) / made.form.rows *
                          ((n + made.form.columns - 1) / made.form.columns) * made.parts;
    const int64_t turns = (tasks + 131) / 132;
    EXPECT_GE(static_cast<double>(tasks) / static_cast<double>(turns * 132), 0.8) << n;
  }
  // No part is empty, and none is longer than the others.
  for (int64_t k = 1; k < 5000; k += 37) {
    const ProductCut made = cut(40, 50, k);
    const int64_t steps = (k + 31) / 32;
    EXPECT_LT((made.parts - 1) * made.part_steps(k), steps) << k;
    EXPECT_GE(made.parts * made.part_steps(k), steps) << k;
  }
}

}  // namespace
}  // namespace ridge::test
