// Products of bytes against their definition (gemm_i8.h), by each form that the machine has.
#include "ridge/backend/cpu/gemm/gemm_i8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "ridge/backend/cpu/cpu_backend.h"
#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"
#include "tests/backend/gemm_problem.h"
#include "tests/backend/i8_forms.h"

namespace ridge::cpu {
namespace {

using GemmI8 = I8Test;

using Bytes = std::vector<uint8_t>;

// Bytes at random, or those of the limits of both types.
Bytes random_bytes(int64_t count, Random& random, bool extreme) {
  static constexpr uint8_t kLimits[] = {0x80, 0x7f, 0xff, 0x00, 0x80};
  Bytes bytes(static_cast<size_t>(count));
  for (uint8_t& x : bytes)
    x = extreme ? kLimits[random() % std::size(kLimits)] : static_cast<uint8_t>(random());
  return bytes;
}

std::vector<float> random_floats(int64_t count, Random& random, float low, float high) {
  std::uniform_real_distribution<float> uniform(low, high);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& x : values) x = uniform(random);
  return values;
}

int64_t number_of(uint8_t byte, bool is_signed) {
  return is_signed ? int64_t{static_cast<int8_t>(byte)} : int64_t{byte};
}

// A product with all that belongs to its results.
struct Product {
  I8Problem problem;
  Bytes a, b, a_zero, b_zero;
  std::vector<float> row_scale, column_scale, bias;
  std::vector<int32_t> sum_bias;
  int32_t zero = 0, low = -128, high = 255;

  Product(const GemmShape& s, Random& random, bool extreme = false) {
    problem.shape = s;
    problem.a_is_signed = random() % 2 != 0;
    problem.b_is_signed = random() % 2 != 0;
    a = random_bytes(size_a(s), random, extreme);
    b = random_bytes(size_b(s), random, extreme);
    // None, one for all, or one for each lane.
    const auto zeros = [&](int64_t count) {
      const auto kind = random() % 3;
      return random_bytes(kind == 0 ? 0 : kind == 1 ? 1 : count, random, extreme);
    };
    a_zero = zeros(s.m);
    b_zero = zeros(s.n);
    if (random() % 2 != 0) row_scale = random_floats(s.m, random, 0.5f, 1.5f);
    const float scale = 2e-3f / static_cast<float>(s.k);
    column_scale = random_floats(random() % 2 != 0 ? s.n : 1, random, -scale, scale);
    if (random() % 2 != 0) bias = random_floats(s.n, random, -100, 100);
    const bool has_sum_bias = random() % 3 == 0;
    for (int64_t j = 0; has_sum_bias && j < s.n; ++j)
      sum_bias.push_back(static_cast<int32_t>(random()) >> 12);
    zero = static_cast<int32_t>(random() % 200) - 100;
    if (random() % 2 == 0) return;
    low = static_cast<int32_t>(random() % 100);  // within both types
    high = low + static_cast<int32_t>(random() % 28);
  }

  static I8Zeros zeros(const Bytes& bytes) {
    return {bytes.empty() ? nullptr : bytes.data(), bytes.size() > 1};
  }
  I8Operands operands() const { return {a.data(), b.data(), zeros(a_zero), zeros(b_zero)}; }
  I8Results results(void* c, DType dtype) const {
    return {.c = c,
            .dtype = dtype,
            .row_scale = row_scale.empty() ? nullptr : row_scale.data(),
            .column_scale = column_scale.data(),
            .has_scale_each_column = column_scale.size() > 1,
            .bias = bias.empty() ? nullptr : bias.data(),
            .sum_bias = sum_bias.empty() ? nullptr : sum_bias.data(),
            .zero = zero,
            .low = low,
            .high = high};
  }

  static int64_t zero_at(const Bytes& bytes, int64_t i, bool is_signed) {
    if (bytes.empty()) return 0;
    return number_of(bytes[bytes.size() > 1 ? static_cast<size_t>(i) : 0], is_signed);
  }
  int32_t sum(int64_t i, int64_t j) const {
    const GemmShape& s = problem.shape;
    const int64_t left_zero = zero_at(a_zero, i, problem.a_is_signed);
    const int64_t right_zero = zero_at(b_zero, j, problem.b_is_signed);
    int64_t sum = sum_bias.empty() ? 0 : sum_bias[static_cast<size_t>(j)];
    for (int64_t p = 0; p < s.k; ++p)
      sum += (number_of(a[static_cast<size_t>(s.transpose_a ? p * s.lda + i : i * s.lda + p)],
                        problem.a_is_signed) -
              left_zero) *
             (number_of(b[static_cast<size_t>(s.transpose_b ? j * s.ldb + p : p * s.ldb + j)],
                        problem.b_is_signed) -
              right_zero);
    return static_cast<int32_t>(static_cast<uint32_t>(sum));
  }
  float scaled(int64_t i, int64_t j, int32_t sum) const {
    const auto row = static_cast<size_t>(i), column = static_cast<size_t>(j);
    float x = static_cast<float>(sum) * column_scale[column_scale.size() > 1 ? column : 0];
    if (!row_scale.empty()) x *= row_scale[row];
    return bias.empty() ? x : x + bias[column];
  }
  template <typename T>
  T wanted(int64_t i, int64_t j, int32_t sum) const {
    if constexpr (std::is_same_v<T, int32_t>) return sum;
    const float x = scaled(i, j, sum);
    if constexpr (std::is_same_v<T, float>) return x;
    if (std::isnan(x)) return 0;
    const double y = std::nearbyint(static_cast<double>(x)) + zero;
    const double least = std::max<double>(low, std::numeric_limits<T>::min());
    const double most = std::min<double>(high, std::numeric_limits<T>::max());
    return static_cast<T>(std::clamp<double>(y, least, most));
  }
};

template <typename T>
std::vector<T> results_of(const Product& product, const I8Operands& operands) {
  std::vector<T> c(static_cast<size_t>(size_c(product.problem.shape)), T{77});
  std::vector<char> workspace(gemm_i8_workspace_bytes(product.problem));
  gemm_i8(product.problem, operands, product.results(c.data(), dtype_of<T>()), workspace.data());
  return c;
}

template <typename T>
std::vector<T> results_of(const Product& product) {
  return results_of<T>(product, product.operands());
}

// op(B) packed beforehand, in memory that is aligned as it has to be.
template <typename T>
std::vector<T> packed_results_of(const Product& product) {
  struct alignas(64) Line {
    char bytes[64];
  };
  const GemmShape& shape = product.problem.shape;
  std::vector<Line> packed(packed_i8_bytes(shape) / 64 + 1);
  pack_i8(shape, product.b.data(), product.problem.b_is_signed, packed.data());
  Product other = product;
  other.problem.b_is_packed = true;
  I8Operands operands = product.operands();
  operands.b = packed.data();
  return results_of<T>(other, operands);
}

template <typename T>
void expect_results(const Product& product, const std::vector<int32_t>& sums) {
  const GemmShape& s = product.problem.shape;
  std::vector<T> wanted(static_cast<size_t>(size_c(s)), T{77});
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j)
      wanted[static_cast<size_t>(i * s.ldc + j)] =
          product.wanted<T>(i, j, sums[static_cast<size_t>(i * s.n + j)]);
  for (const I8Form form : i8_forms()) {
    Product formed = product;
    formed.problem.form = form;
    ASSERT_TRUE(same_bits(results_of<T>(formed), wanted))
        << name_of(form) << " " << s.m << "x" << s.n << "x" << s.k;
    ASSERT_TRUE(same_bits(packed_results_of<T>(formed), wanted))
        << name_of(form) << " packed " << s.m << "x" << s.n << "x" << s.k;
  }
}

void expect_definition(const Product& product) {
  const GemmShape& s = product.problem.shape;
  std::vector<int32_t> sums;
  for (int64_t i = 0; i < s.m; ++i)
    for (int64_t j = 0; j < s.n; ++j) sums.push_back(product.sum(i, j));
  expect_results<int32_t>(product, sums);
  expect_results<float>(product, sums);
  expect_results<int8_t>(product, sums);
  expect_results<uint8_t>(product, sums);
}

int64_t edge_size(Random& random, int64_t limit) {
  static constexpr int64_t kEdges[] = {1, 2, 3, 5, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129};
  const int64_t size = random() % 3 ? kEdges[random() % std::size(kEdges)]
                                    : 1 + static_cast<int64_t>(random() % 140);
  return std::min(size, limit);
}

TEST_F(GemmI8, FollowsItsDefinition) {
  Random random(1);
  for (int round = 0; round < 40; ++round) {
    const bool deep = round % 8 == 0;
    const int64_t most = deep ? 40 : 140;
    const int64_t m = edge_size(random, most), n = edge_size(random, most);
    const int64_t k = deep ? 1090 : edge_size(random, 140);
    expect_definition({shape_with_layout(m, n, k, round & 3, round % 3), random, round % 5 == 0});
  }
}

// More columns than have their sums at once, and a depth that is packed in several chunks.
TEST_F(GemmI8, LargeProductsFollowIt) {
  Random random(2);
  for (const GemmShape& s : {shape_with_layout(3, 600, 700, 0, 1),
                             shape_with_layout(260, 300, 70, 3),
                             shape_with_layout(130, 17, 2100, 2),
                             shape_with_layout(1, 40, 17'000, 0)})
    expect_definition({s, random});
}

// Rows of whole tiles, which a form may read where they lie, and results of columns whose numbers
// are small, which it may round by other instructions.
TEST_F(GemmI8, RowsOfWholeTilesFollowIt) {
  Random random(7);
  for (const int64_t m : {1, 15, 16, 33, 130})
    for (const int64_t k : {64, 192, 1088}) {
      Product product(shape_with_layout(m, k == 64 ? 130 : 70, k, random() % 2 ? 0 : 2), random);
      product.b_zero.clear();
      product.problem.b_is_signed = true;
      if (m != 33) product.row_scale.clear();
      if (m != 15) product.a_zero.resize(std::min<size_t>(product.a_zero.size(), 1));
      expect_definition(product);
    }
}

// Sums of pairs and of quads of the largest products, which instructions that saturate would miss,
// and sums beyond 32 bits.
TEST_F(GemmI8, LimitsAreExact) {
  Random random(3);
  for (const int left : {0x80, 0x7f, 0xff, 0x00})
    for (const int right : {0x80, 0x7f, 0xff}) {
      Product product(shape_with_layout(5, 19, 67, 0), random);
      std::fill(product.a.begin(), product.a.end(), static_cast<uint8_t>(left));
      std::fill(product.b.begin(), product.b.end(), static_cast<uint8_t>(right));
      for (const bool a_is_signed : {false, true})
        for (const bool b_is_signed : {false, true}) {
          product.problem.a_is_signed = a_is_signed;
          product.problem.b_is_signed = b_is_signed;
          expect_definition(product);
        }
    }
  Product product(shape_with_layout(1, 1, 40'000, 0), random);
  product.problem.a_is_signed = product.problem.b_is_signed = false;
  product.a_zero = product.b_zero = {};
  product.sum_bias = {};
  std::fill(product.a.begin(), product.a.end(), 0xff);
  std::fill(product.b.begin(), product.b.end(), 0xff);
  ASSERT_LT(product.sum(0, 0), 0);
  expect_definition(product);
}

TEST_F(GemmI8, RoundsToEvenAndSaturates) {
  Random random(4);
  Product product(shape_with_layout(1, 6, 1, 0), random);
  product.problem.a_is_signed = product.problem.b_is_signed = true;
  product.a = {1};
  product.b = {1, 3, 0xff, 0xfd, 127, 0x80};  // 1, 3, -1, -3, 127, -128
  product.a_zero = product.b_zero = {};
  product.row_scale = product.bias = {};
  product.column_scale = {0.5f};
  product.sum_bias = {};
  product.zero = 0;
  product.low = -128;
  product.high = 255;
  EXPECT_EQ(results_of<int8_t>(product), (std::vector<int8_t>{0, 2, 0, -2, 64, -64}));
  EXPECT_EQ(results_of<uint8_t>(product), (std::vector<uint8_t>{0, 2, 0, 0, 64, 0}));
  product.zero = 100;
  EXPECT_EQ(results_of<int8_t>(product), (std::vector<int8_t>{100, 102, 100, 98, 127, 36}));
  const float inf = std::numeric_limits<float>::infinity();
  product.bias = {inf, -inf, std::nanf(""), 3e38f, -3e38f, 0};
  EXPECT_EQ(results_of<int8_t>(product), (std::vector<int8_t>{127, -128, 0, 127, -128, 36}));
  EXPECT_EQ(results_of<uint8_t>(product), (std::vector<uint8_t>{255, 0, 0, 255, 0, 36}));
}

TEST_F(GemmI8, SameBitsForAnyThreadsAndAnyPart) {
  Random random(5);
  for (const GemmShape& s : {shape_with_layout(300, 600, 701, 0, 5),
                             shape_with_layout(128, 700, 1537, 1),
                             shape_with_layout(9, 1500, 900, 2),
                             shape_with_layout(700, 9, 513, 3, 1)}) {
    Product product(s, random);
    set_num_threads(1);
    const std::vector<float> whole = results_of<float>(product);
    for (const I8Form form : i8_forms())
      for (int threads : {2, 5}) {
        product.problem.form = form;
        set_num_threads(threads);
        ASSERT_TRUE(same_bits(results_of<float>(product), whole))
            << name_of(form) << " " << s.m << "x" << s.n << "x" << s.k;
      }
    for (auto [m, n] : {std::pair<int64_t, int64_t>{1, s.n}, {s.m, 1}, {3, 5}, {8, 9}}) {
      Product part = product;
      part.problem.shape.m = m;
      part.problem.shape.n = n;
      const std::vector<float> got = results_of<float>(part);
      for (int64_t i = 0; i < m; ++i)
        ASSERT_EQ(std::memcmp(&got[static_cast<size_t>(i * s.ldc)],
                              &whole[static_cast<size_t>(i * s.ldc)],
                              static_cast<size_t>(n) * sizeof(float)),
                  0)
            << m << "x" << n << " of " << s.m << "x" << s.n << "x" << s.k;
    }
  }
}

TEST_F(GemmI8, BatchesAreTheirItems) {
  Random random(6);
  for (const int64_t size : {40, 330}) {
    const GemmShape s = shape_with_layout(size, 65, size, 2);
    for (const int64_t stride_b : {s.n * s.k, int64_t{0}}) {
      constexpr int64_t kCount = 3;
      Product product(s, random);
      product.a = random_bytes(kCount * s.m * s.k, random, false);
      product.b = random_bytes(kCount * s.n * s.k, random, false);
      const auto run = [&](int64_t item, int64_t count, int32_t* c) {
        Product some = product;
        some.problem.batch = {count, s.m * s.k, stride_b, s.m * s.n};
        I8Operands operands = product.operands();
        operands.a = product.a.data() + item * s.m * s.k;
        operands.b = product.b.data() + item * stride_b;
        std::vector<char> workspace(gemm_i8_workspace_bytes(some.problem));
        gemm_i8(some.problem, operands, some.results(c, DType::kI32), workspace.data());
      };
      std::vector<int32_t> all(static_cast<size_t>(kCount * s.m * s.n)), each = all;
      run(0, kCount, all.data());
      for (int64_t item = 0; item < kCount; ++item) run(item, 1, each.data() + item * s.m * s.n);
      ASSERT_TRUE(same_bits(all, each)) << size << " " << stride_b;
    }
  }
}

TEST_F(GemmI8, TouchesNothingBeside) {
  Random random(7);
  for (int round = 0; round < 24; ++round) {
    const GemmShape s = shape_with_layout(
        edge_size(random, 140), edge_size(random, 140), edge_size(random, 140), round & 3);
    Product product(s, random);
    const std::vector<uint8_t> wanted = results_of<uint8_t>(product);
    const bool at_end = round % 3 != 0;
    Guarded<uint8_t> a(product.a, at_end), b(product.b, at_end);
    Guarded<uint8_t> c(std::vector<uint8_t>(wanted.size(), 77), at_end);
    I8Operands operands = product.operands();
    operands.a = a.data();
    operands.b = b.data();
    for (const I8Form form : i8_forms()) {
      product.problem.form = form;
      std::vector<char> workspace(gemm_i8_workspace_bytes(product.problem));
      gemm_i8(product.problem, operands, product.results(c.data(), DType::kU8), workspace.data());
      ASSERT_TRUE(same_bits(c.values(), wanted)) << name_of(form);
    }
  }
}

TEST_F(GemmI8, EachBlockIsFinishedOnce) {
  Random random(8);
  const Product product(shape_with_layout(150, 530, 40, 0), random);
  const GemmShape& s = product.problem.shape;
  std::vector<int32_t> c(static_cast<size_t>(s.m * s.n));
  std::vector<std::atomic<int>> seen(c.size());
  std::vector<char> workspace(gemm_i8_workspace_bytes(product.problem));
  const auto see = [&](const GemmBlock& block) {
    for (int64_t i = block.row; i < block.row + block.rows; ++i)
      for (int64_t j = block.column; j < block.column + block.columns; ++j)
        ++seen[static_cast<size_t>(i * s.n + j)];
  };
  const FinishBlock finish(see);
  gemm_i8(product.problem,
          product.operands(),
          product.results(c.data(), DType::kI32),
          workspace.data(),
          &finish);
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](const auto& n) { return n == 1; }));
}

// Sessions pack constant factors by ops, which a backend runs.
TEST_F(GemmI8, OpsPackTheSameBytes) {
  Random random(10);
  const auto backend = make_cpu_backend();
  for (int round = 0; round < 12; ++round) {
    const GemmShape s = shape_with_layout(
        3, edge_size(random, 140), round == 0 ? 1500 : edge_size(random, 140), round & 2);
    const DType dtype = round % 3 == 0 ? DType::kU8 : DType::kI8;
    const TensorType type{dtype, s.transpose_b ? Shape{s.n, s.k} : Shape{s.k, s.n}};
    const Bytes bytes = random_bytes(s.n * s.k, random, round % 4 == 0);
    Graph product("product"), pack("pack");
    MatMulI8 op;
    op.transpose_b = s.transpose_b;
    const Value y = add_node(std::move(op),
                             {input(product, "a", {DType::kU8, {s.m, s.k}}),
                              input(product, "b", type),
                              input(product, "a_zero", {DType::kU8, {}}),
                              input(product, "b_zero", {dtype, {}})});
    const std::vector<PackedOperand> operands = backend->packed_operands(*y.node, 0);
    ASSERT_EQ(operands.size(), 1u);
    EXPECT_EQ(operands[0].input, MatMulI8::kB);
    pack.add_output("packed", operands[0].pack(input(pack, "b", type)));
    Tensor tensor(type);
    std::memcpy(tensor.data(), bytes.data(), bytes.size());
    const Tensor got = evaluate(pack, *backend, {{"b", tensor}}).at("packed");
    ASSERT_EQ(static_cast<size_t>(got.elements()), packed_i8_bytes(s));
    std::vector<uint8_t> wanted(packed_i8_bytes(s) + 64);
    const auto address = reinterpret_cast<uintptr_t>(wanted.data());
    uint8_t* const aligned = wanted.data() + (64 - address % 64) % 64;
    pack_i8(s, bytes.data(), dtype == DType::kI8, aligned);
    EXPECT_EQ(std::memcmp(got.data(), aligned, packed_i8_bytes(s)), 0) << s.n << "x" << s.k;
  }
}

TEST_F(GemmI8, FormsFollowTheInstructionSet) {
  set_isa(Isa::kAvx2);
  EXPECT_TRUE(has_i8_form(I8Form::kAvx2));
  EXPECT_FALSE(has_i8_form(I8Form::kVnni512));
  EXPECT_FALSE(has_i8_form(I8Form::kAmx));
  Random random(9);
  Product product(shape_with_layout(20, 30, 40, 0), random);
  const std::vector<int8_t> narrow = results_of<int8_t>(product);
  product.problem.form = I8Form::kVnni512;
  EXPECT_THROW(results_of<int8_t>(product), InternalError);
  EXPECT_THROW(results_of<double>(product), InternalError);
  set_isa(isa_);
  product.problem.form = best_i8_form();
  EXPECT_TRUE(same_bits(results_of<int8_t>(product), narrow));
}

// One core makes 16 to 4096 operations a cycle at 0.2 to 8 GHz.
TEST_F(GemmI8, PeakIsPlausible) {
  set_num_threads(1);
  for (const I8Form form : i8_forms()) {
    const double peak = measure_i8_peak(form);
    EXPECT_GT(peak, 0.2e9 * 16) << name_of(form);
    EXPECT_LT(peak, 8e9 * 4096) << name_of(form);
  }
}

}  // namespace
}  // namespace ridge::cpu
