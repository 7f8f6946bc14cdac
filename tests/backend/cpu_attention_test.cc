// CPU attention against the definition, written out here in f64, and the reference backend.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/graph/ops/attention.h"
#include "tests/backend/cpu_runs.h"

namespace ridge::test {
namespace {

const DType kFloatDTypes[] = {DType::kF64, DType::kF32, DType::kF16, DType::kBF16};

struct Case {
  int64_t batch = 1, heads = 1, queries = 1, keys = 1, depth = 1, width = 1;
  bool causal = false;
  double scale = 0.0;  // 0: the usual one
  Shape mask = {};     // empty: none
  bool is_bias = false;

  double real_scale() const { return scale != 0.0 ? scale : 1.0 / std::sqrt(double(depth)); }
};

// Inputs x0 (q), x1 (k), x2 (v) and perhaps x3 (the mask).
void build(const Case& c, CaseBuilder& b, double range = 2.0) {
  const Value q = b.input({c.batch, c.heads, c.queries, c.depth}, -range, range);
  const Value k = b.input({c.batch, c.heads, c.keys, c.depth}, -range, range);
  const Value v = b.input({c.batch, c.heads, c.keys, c.width});
  AttentionOptions options{.causal = c.causal, .scale = c.scale};
  if (c.is_bias)
    options.mask = b.input(c.mask);
  else if (!c.mask.empty())
    options.mask = b.input(DType::kBool, c.mask, 0, 1);
  const Value y = attention(q, k, v, options);
  b.finish({y, {y.node, 1}});
}

std::vector<double> numbers(const Tensor& tensor) {
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor.elements(); ++i) numbers.push_back(tensor.at(i));
  return numbers;
}

// The element of the mask, or of the bias.
double mask_at(const Case& c, const NamedTensors& tensors, int64_t head, int64_t t, int64_t s) {
  const int64_t place[] = {head / c.heads, head % c.heads, t};
  int64_t row = 0;
  for (size_t i = 0; i < 3; ++i) row = row * c.mask[i] + (c.mask[i] == 1 ? 0 : place[i]);
  return tensors.at("x3").at(row * c.keys + s);
}

bool is_allowed(const Case& c, const NamedTensors& tensors, int64_t head, int64_t t, int64_t s) {
  if (c.causal && s > t) return false;
  return c.mask.empty() || c.is_bias || mask_at(c, tensors, head, t, s) != 0.0;
}

struct Defined {
  Tensor y, logsumexp;
};

// softmax(scale q k^T) v, with the sums in f64 and every score kept.
Defined define(const Case& c, const NamedTensors& tensors) {
  const auto q = numbers(tensors.at("x0")), k = numbers(tensors.at("x1")),
             v = numbers(tensors.at("x2"));
  Tensor y(TensorType{DType::kF64, {c.batch, c.heads, c.queries, c.width}});
  Tensor logsumexp(TensorType{DType::kF64, {c.batch, c.heads, c.queries}});
  for (int64_t head = 0; head < c.batch * c.heads; ++head)
    for (int64_t t = 0; t < c.queries; ++t) {
      std::vector<double> weights(size_t(c.keys), 0.0);
      double max = -INFINITY, sum = 0.0;
      for (int round = 0; round < 2; ++round)
        for (int64_t s = 0; s < c.keys; ++s) {
          if (!is_allowed(c, tensors, head, t, s)) continue;
          const double* query = &q[size_t((head * c.queries + t) * c.depth)];
          const double* key = &k[size_t((head * c.keys + s) * c.depth)];
          const double score =
              c.real_scale() * std::inner_product(query, query + c.depth, key, 0.0) +
              (c.is_bias ? mask_at(c, tensors, head, t, s) : 0.0);
          if (round == 0)
            max = std::max(max, score);
          else
            sum += weights[size_t(s)] = std::exp(score - max);
        }
      logsumexp.set(head * c.queries + t, sum == 0.0 ? 0.0 : max + std::log(sum));
      for (int64_t e = 0; e < c.width; ++e) {
        double result = 0.0;
        for (int64_t s = 0; s < c.keys; ++s)
          if (weights[size_t(s)] != 0.0)
            result += weights[size_t(s)] / sum * v[size_t((head * c.keys + s) * c.width + e)];
        y.set((head * c.queries + t) * c.width + e, result);
      }
    }
  return {std::move(y), std::move(logsumexp)};
}

Tensor widened(const Tensor& from) {
  Tensor wide({DType::kF64, from.type().shape});
  for (int64_t i = 0; i < from.elements(); ++i) wide.set(i, from.at(i));
  return wide;
}

std::string far_from_definition(const Case& c, CaseBuilder& b, double tolerance_factor = 1.0) {
  const NamedTensors results = run_every_way(b);
  const Defined want = define(c, b.tensors());
  const auto differ = [&](const char* name, const Tensor& expected) {
    const Tensor& got = results.at(name);
    return difference(widened(got),
                      expected,
                      tolerance(got.type().dtype, OpClass::kContraction) * tolerance_factor);
  };
  return differ("y0", want.y) + differ("y1", want.logsumexp);
}

std::string describe(const Case& c, DType dtype) {
  return fmt::format("{} B {} H {} T {} S {} D {} E {} causal {} mask {} bias {}",
                     name_of(dtype),
                     c.batch,
                     c.heads,
                     c.queries,
                     c.keys,
                     c.depth,
                     c.width,
                     c.causal,
                     to_string(c.mask),
                     c.is_bias);
}

Case random_case(uint64_t seed) {
  Random random(seed);
  Case c{random.integer(1, 2),
         random.integer(1, 3),
         random.integer(1, 90),
         random.integer(1, 90),
         random.integer(1, 40),
         random.integer(1, 40)};
  c.causal = random.chance(0.5);
  if (random.chance(0.5)) {
    c.mask = {c.batch, c.heads, c.queries, c.keys};
    for (size_t i = 0; i < 3; ++i)
      if (random.chance(0.5)) c.mask[i] = 1;
  }
  if (random.chance(0.3)) c.scale = random.uniform(-1.0, 1.0);
  c.is_bias = !c.mask.empty() && random.chance(0.5);
  return c;
}

TEST(CpuAttention, RandomShapesAndMasks) {
  const auto cpu = make_cpu_backend(), reference = make_ref_backend();
  for (uint64_t seed = 0; seed < 80; ++seed) {
    const Case c = random_case(seed);
    const DType dtype = kFloatDTypes[seed % 4];
    CaseBuilder b(dtype, seed);
    build(c, b);
    EXPECT_EQ(far_from_definition(c, b), "") << describe(c, dtype);
    EXPECT_EQ(node_differences(b.graph(), b.tensors(), *cpu, *reference), "") << describe(c, dtype);
  }
}

// Several blocks of queries and of keys, depths beyond one chain of the product.
TEST(CpuAttention, ManyBlocks) {
  const Case cases[] = {{1, 2, 200, 300, 64, 48, true},
                        {1, 2, 300, 200, 64, 48, true},
                        {2, 1, 129, 257, 300, 70, false},
                        {1, 3, 65, 385, 33, 17, false, 0.0, {1, 1, 65, 385}},
                        {1, 20, 70, 150, 16, 16, true, 0.0, {1, 20, 1, 150}},
                        {2, 3, 65, 385, 33, 17, false, 0.0, {1, 3, 65, 385}, true},
                        {2, 3, 70, 385, 33, 17, false, 0.0, {2, 1, 1, 385}, true}};
  for (DType dtype : kFloatDTypes)
    for (const Case& c : cases) {
      CaseBuilder b(dtype, 9);
      build(c, b);
      // In f32, scores are sums of hundreds of products whose rounding the weights inherit.
      EXPECT_EQ(far_from_definition(c, b, 4.0), "") << describe(c, dtype);
    }
}

// Scores in the hundreds: the running maximum jumps, most weights vanish, nothing overflows.
TEST(CpuAttention, LargeScores) {
  for (DType dtype : {DType::kF64, DType::kF32}) {
    const Case c{1, 1, 70, 500, 24, 20, false, 1.0};
    CaseBuilder b(dtype, 10);
    build(c, b, 10.0);
    // An error of a score is one of the weight. By rounding alone a score of 24 products is off by
    // up to 24 u sum |q k|: with |q|, |k| up to 10 about 24 * 2^-24 * 800 = 1.1e-3 in f32, some 300
    // times the table's 4e-6.
    EXPECT_EQ(far_from_definition(c, b, 300.0), "") << name_of(dtype);
  }
}

TEST(CpuAttention, QueriesWithoutAKeyGiveZeros) {
  for (DType dtype : kFloatDTypes) {
    const int64_t keys = 200;
    CaseBuilder b(dtype, 11);
    const Value q = b.input({1, 1, 3, 8}), k = b.input({1, 1, keys, 8}),
                v = b.input({1, 1, keys, 5});
    std::vector<double> mask(3 * keys, 0.0);
    mask[keys + 150] = 1.0;  // query 1 sees one key, of the second block
    const Value allowed = b.given({DType::kBool, {1, 1, 3, keys}}, mask);
    b.finish({attention(q, k, v, {.mask = allowed})});
    const NamedTensors results = run_every_way(b);
    const Tensor &y = results.at("y0"), &values = b.tensors().at("x2");
    for (int64_t e = 0; e < 5; ++e) {
      EXPECT_EQ(y.at(e), 0.0);
      EXPECT_EQ(y.at(5 + e), values.at(150 * 5 + e));
      EXPECT_EQ(y.at(10 + e), 0.0);
    }
  }
}

// Attention keeps softmax's rules: a NaN or +infinity among the scores makes the query's result
// NaN, a score of -infinity has no weight, and only such scores are NaN again.
TEST(CpuAttention, SpecialScores) {
  for (DType dtype : kFloatDTypes) {
    const int64_t keys = 140;
    CaseBuilder b(dtype, 12);
    // One query; the scores are the keys.
    const Value q = b.given({dtype, {1, 1, 1, 1}}, {1.0});
    std::vector<double> one_finite(keys, -INFINITY), one_nan(keys, 1.0), none(keys, -INFINITY);
    one_finite[139] = 1.0;
    one_nan[20] = NAN;
    std::vector<Value> ys;
    const Value v = b.input({1, 1, keys, 3});
    for (const auto& scores : {one_finite, one_nan, none})
      ys.push_back(attention(q, b.given({dtype, {1, 1, keys, 1}}, scores), v, {}));
    b.finish(ys);
    const NamedTensors results = run_every_way(b);
    const Tensor& values = b.tensors().at("x1");
    for (int64_t e = 0; e < 3; ++e) {
      EXPECT_EQ(results.at("y0").at(e), values.at(139 * 3 + e)) << name_of(dtype);
      EXPECT_TRUE(std::isnan(results.at("y1").at(e))) << name_of(dtype);
      EXPECT_TRUE(std::isnan(results.at("y2").at(e))) << name_of(dtype);
    }
  }
}

// A bias of -infinity leaves a key no weight; where all of a query are such, nothing has one.
TEST(CpuAttention, InfiniteBias) {
  for (DType dtype : kFloatDTypes) {
    const int64_t keys = 140;
    CaseBuilder b(dtype, 14);
    const Value q = b.input({1, 1, 2, 4}), k = b.input({1, 1, keys, 4}),
                v = b.input({1, 1, keys, 3});
    std::vector<double> bias(2 * keys, -INFINITY);
    bias[139] = 1.0;
    b.finish({attention(q, k, v, {.mask = b.given({dtype, {1, 1, 2, keys}}, bias)})});
    const NamedTensors results = run_every_way(b);
    const Tensor& values = b.tensors().at("x2");
    for (int64_t e = 0; e < 3; ++e) {
      EXPECT_EQ(results.at("y0").at(e), values.at(139 * 3 + e)) << name_of(dtype);
      EXPECT_TRUE(std::isnan(results.at("y0").at(3 + e))) << name_of(dtype);
    }
  }
}

TEST(CpuAttention, WorkspaceDoesNotGrowWithTheLength) {
  const auto backend = make_cpu_backend();
  const auto workspace = [&](DType dtype, int64_t length) {
    CaseBuilder b(dtype, 13);
    build({1, 4, length, length, 8, 8}, b);
    return backend->instantiate(*b.graph().outputs()[0].value.node, 0)->workspace_bytes();
  };
  for (DType dtype : kFloatDTypes) EXPECT_EQ(workspace(dtype, 1024), workspace(dtype, 4096));
}

}  // namespace
}  // namespace ridge::test
