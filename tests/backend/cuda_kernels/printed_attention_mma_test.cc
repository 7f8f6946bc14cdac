// Printed attention of 16-bit operands by tensor cores, run on the CPU thread by thread, against
// its formula in f64: no result is off by more than the roundings that the kernels are to make.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ridge/run/backends.h"
#include "tests/backend/cuda_kernels/attention_forms.h"
#include "tests/backend/cuda_kernels/printed_cases.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

struct Matrix {
  Matrix() = default;
  Matrix(int64_t rows, int64_t row_length)
      : columns(row_length), values(static_cast<size_t>(rows * row_length)) {}
  int64_t rows() const { return std::ssize(values) / columns; }
  double& operator()(int64_t i, int64_t j) { return values[static_cast<size_t>(i * columns + j)]; }
  double operator()(int64_t i, int64_t j) const {
    return values[static_cast<size_t>(i * columns + j)];
  }

  int64_t columns = 1;
  std::vector<double> values;
};

// Numbers, and what those of a kernel are off by at most.
struct Bounded {
  Bounded(int64_t rows, int64_t columns) : value(rows, columns), off(rows, columns) {}
  Matrix value, off;
};

// The product of two rows, and the sum of its terms' magnitudes.
struct Sum {
  Sum(const Matrix& a, int64_t i, const Matrix& b, int64_t j) {
    for (int64_t c = 0; c < a.columns; ++c) {
      const double term = a(i, c) * b(j, c);
      value += term, size += std::fabs(term);
    }
  }
  double value = 0.0, size = 0.0;
};

// The largest error of rounding to nearest, for a number of size 1 and for a small one.
struct Rounding {
  double relative, least;
  double off(double size) const { return size * relative + least; }
};
Rounding rounding_of(DType dtype) {
  return dtype == DType::kF16 ? Rounding{0x1p-11, 0x1p-25} : Rounding{0x1p-8, 0x1p-133};
}

// The numbers of one head, and what its results are off by at most. Sums of n products in f32 are
// off by n roundings of the sum of their magnitudes: n * 2^-24, taken twice, since tensor cores cut
// what they add instead of rounding it.
struct Head {
  int64_t queries, keys, depth, width;
  double scale;
  Rounding rounding;
  Matrix q, k, v;
  Matrix allowed;                          // 0 forbids a key
  Matrix dy = {}, y = {}, logsumexp = {};  // for a gradient

  static double f32(int64_t terms) { return static_cast<double>(terms + 2) * 0x1p-23; }

  Bounded scores() const {
    Bounded s(queries, keys);
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        const Sum sum(q, i, k, j);
        s.value(i, j) = sum.value * scale;
        s.off(i, j) = scale * sum.size * f32(depth);
      }
    return s;
  }
};

// y, and the logsumexps in `rows`.
Bounded forward(const Head& h, Bounded& rows) {
  const Bounded s = h.scores();
  Bounded y(h.queries, h.width);
  for (int64_t i = 0; i < h.queries; ++i) {
    double max = -INFINITY, sum = 0.0, worst = 0.0;
    for (int64_t j = 0; j < h.keys; ++j)
      if (h.allowed(i, j) != 0) max = std::max(max, s.value(i, j));
    if (max == -INFINITY) continue;  // zeros, exactly
    for (int64_t j = 0; j < h.keys; ++j)
      if (h.allowed(i, j) != 0) {
        sum += std::exp(s.value(i, j) - max);
        worst = std::max(worst, s.off(i, j) + 0x1p-22 * std::fabs(max));
      }
    const double logsumexp = rows.value(i, 0) = max + std::log(sum);
    rows.off(i, 0) = worst + Head::f32(h.keys) + 0x1p-22 * (1 + std::fabs(logsumexp));
    const double relative = 2 * std::expm1(worst) + 2 * Head::f32(h.keys) + 0x1p-20;
    for (int64_t c = 0; c < h.width; ++c) {
      double value = 0.0, size = 0.0, small = 0.0;
      for (int64_t j = 0; j < h.keys; ++j) {
        if (h.allowed(i, j) == 0) continue;
        const double weight = std::exp(s.value(i, j) - max) / sum;
        value += weight * h.v(j, c);
        size += weight * std::fabs(h.v(j, c));
        small += std::fabs(h.v(j, c)) / sum;
      }
      const double made = size * (h.rounding.relative + relative) + small * h.rounding.least;
      y.value(i, c) = value;
      y.off(i, c) = made + h.rounding.off(std::fabs(value) + made);
    }
  }
  return y;
}

// The products of a gradient, out(i, c) = sum over j of weights(i, j) x(j, c), rounded.
Bounded product(const Head& h, const Bounded& weights, const Matrix& x, bool turned) {
  Bounded out(turned ? weights.value.columns : weights.value.rows(), x.columns);
  for (int64_t i = 0; i < out.value.rows(); ++i)
    for (int64_t c = 0; c < x.columns; ++c) {
      double value = 0.0, off = 0.0, size = 0.0;
      for (int64_t j = 0; j < x.rows(); ++j) {
        const double weight = turned ? weights.value(j, i) : weights.value(i, j);
        const double before = turned ? weights.off(j, i) : weights.off(i, j);
        value += weight * x(j, c);
        size += std::fabs(weight * x(j, c));
        off += std::fabs(x(j, c)) * (before + h.rounding.off(std::fabs(weight) + before));
      }
      off += size * Head::f32(x.rows());
      out.value(i, c) = value;
      out.off(i, c) = off + h.rounding.off(std::fabs(value) + off);
    }
  return out;
}

// dq, dk and dv.
std::array<Bounded, 3> backward(const Head& h) {
  const Bounded s = h.scores();
  Bounded weights(h.queries, h.keys), dscores(h.queries, h.keys);
  for (int64_t i = 0; i < h.queries; ++i) {
    const double logsumexp = h.logsumexp(i, 0);
    const Sum delta(h.y, i, h.dy, i);
    for (int64_t j = 0; j < h.keys; ++j) {
      if (h.allowed(i, j) == 0) continue;
      const double score = s.value(i, j), weight = std::exp(score - logsumexp);
      const double relative =
          std::expm1(s.off(i, j) + 0x1p-22 * (std::fabs(score) + std::fabs(logsumexp))) + 0x1p-20;
      const Sum dweight(h.dy, i, h.v, j);
      const double difference = (dweight.value - delta.value) * h.scale;
      const double difference_off = h.scale * (dweight.size + delta.size) * Head::f32(h.width);
      weights.value(i, j) = weight;
      weights.off(i, j) = weight * relative;
      dscores.value(i, j) = weight * difference;
      dscores.off(i, j) =
          weight * (1 + relative) * difference_off + weight * relative * std::fabs(difference);
    }
  }
  return {product(h, dscores, h.k, false),
          product(h, dscores, h.q, true),
          product(h, weights, h.dy, true)};
}

// The head's rows out of a tensor.
Matrix rows_of(const Tensor& tensor,
               const HeadLayout& layout,
               int64_t batch,
               int64_t head,
               int64_t rows,
               int64_t columns) {
  Matrix m(rows, columns);
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c)
      m(i, c) = tensor.at(layout.begin + batch * layout.batch_stride + head * layout.head_stride +
                          i * layout.row_stride + c);
  return m;
}

void expect_within(const Matrix& got, const Bounded& wanted, const char* what) {
  ASSERT_EQ(got.values.size(), wanted.value.values.size());
  for (int64_t i = 0; i < got.rows(); ++i)
    for (int64_t j = 0; j < got.columns; ++j)
      ASSERT_LE(std::fabs(got(i, j) - wanted.value(i, j)), wanted.off(i, j))
          << what << ", " << i << ", " << j << ": " << got(i, j) << ", not " << wanted.value(i, j);
}

// One number a row, as logsumexps lie.
HeadLayout by_rows(const AttentionLayout& l) { return {0, l.heads * l.queries, l.queries, 1}; }

// Calls visit(batch, head, layout, numbers of the head) for each. `others`: inputs between operands
// and mask.
template <class Visit>
void for_each_head(const Node& node,
                   const AttentionForm& form,
                   const NamedTensors& operands,
                   size_t others,
                   Visit visit) {
  const auto from = [&](size_t i) -> const Tensor& { return operands.at(name_of_number(i)); };
  const AttentionLayout l = attention_layout(form, node.input_types());
  const size_t n = form.operands();
  const bool is_masked = node.inputs.size() > n + others;
  for (int64_t b = 0; b < l.batch; ++b)
    for (int64_t head = 0; head < l.heads; ++head) {
      const auto rows = [&](size_t i, const HeadLayout& layout, int64_t count, int64_t columns) {
        return rows_of(from(i), layout, b, head, count, columns);
      };
      Head h{.queries = l.queries,
             .keys = l.keys,
             .depth = l.depth,
             .width = l.width,
             .scale = form.scale,
             .rounding = rounding_of(node.inputs[0].dtype()),
             .q = rows(0, l.q, l.queries, l.depth),
             .k = rows(form.is_packed() ? 0 : 1, l.k, l.keys, l.depth),
             .v = rows(form.is_packed() ? 0 : 2, l.v, l.keys, l.width),
             .allowed = Matrix(l.queries, l.keys)};
      if (others != 0) {
        h.y = rows(n, l.y, l.queries, l.width);
        h.dy = rows(n + 2, l.y, l.queries, l.width);
        h.logsumexp = rows(n + 1, by_rows(l), l.queries, 1);
      }
      const Shape shape = is_masked ? node.inputs[n + others].shape() : Shape{1, 1, 1, 1};
      for (int64_t i = 0; i < l.queries; ++i)
        for (int64_t j = 0; j < l.keys; ++j) {
          const int64_t at =
              ((b % shape[0] * shape[1] + head % shape[1]) * shape[2] + i % shape[2]) * shape[3] +
              j;
          const bool is_seen = !is_masked || from(n + others).at(at) != 0.0;
          h.allowed(i, j) = is_seen && (!form.causal || j <= i) ? 1.0 : 0.0;
        }
      visit(b, head, l, h);
    }
}

void expect_forward(const Graph& lone, const NamedTensors& operands, const NamedTensors& got) {
  const Node& node = *lone.outputs()[0].value.node;
  for_each_head(node,
                node.op_as<Attention>(),
                operands,
                0,
                [&](int64_t b, int64_t head, const AttentionLayout& l, const Head& h) {
                  Bounded rows(l.queries, 1);
                  const Bounded y = forward(h, rows);
                  expect_within(rows_of(got.at("0"), l.y, b, head, l.queries, l.width), y, "y");
                  expect_within(
                      rows_of(got.at("1"), by_rows(l), b, head, l.queries, 1), rows, "logsumexp");
                });
}

void expect_backward(const Graph& lone, const NamedTensors& operands, const NamedTensors& got) {
  const Node& node = *lone.outputs()[0].value.node;
  const auto& op = node.op_as<AttentionGrad>();
  const auto result = [&](size_t i) -> const Tensor& {
    return got.at(name_of_number(op.is_packed() ? 0 : i));
  };
  for_each_head(
      node, op, operands, 3, [&](int64_t b, int64_t head, const AttentionLayout& l, const Head& h) {
        const std::array<Bounded, 3> wanted = backward(h);
        expect_within(rows_of(result(0), l.q, b, head, l.queries, l.depth), wanted[0], "dq");
        expect_within(rows_of(result(1), l.k, b, head, l.keys, l.depth), wanted[1], "dk");
        expect_within(rows_of(result(2), l.v, b, head, l.keys, l.width), wanted[2], "dv");
      });
}

// Tiles that are full and that are not, of both sides; each depth of product; blocks that a causal
// mask leaves out, cuts and leaves alone; more keys than queries and fewer; masks that are repeated
// along each axis, with rows of which no key is allowed; heads of several groups.
const AttentionCase kForms[] = {
    {1, 1, 64, 64, 64, 64},
    {1, 2, 130, 130, 64, 64, true, {}, true},
    {2, 1, 1, 1, 16, 16},
    {1, 1, 70, 133, 32, 48},
    {1, 1, 33, 200, 16, 128},
    {1, 1, 100, 100, 128, 128, true, {}, true},
    {1, 1, 100, 40, 16, 16, true},
    {1, 1, 40, 100, 112, 16, true},
    {1, 2, 40, 70, 16, 32, false, {1, 2, 40, 70}},
    {2, 1, 66, 66, 16, 16, true, {2, 1, 1, 66}},
    {1, 3, 20, 20, 16, 16, false, {1, 1, 20, 20}, true},
};

// Outside of the full form, in f16 only the one in four whose turn it is, and the others in bf16.
template <class Make>
void expect_forms(Make make, size_t turn, const Cases::Check& check) {
  Cases all;
  size_t number = 0;
  for (const AttentionCase& form : kForms)
    for (const DType dtype : {DType::kBF16, DType::kF16})
      if (is_full_scale() || (dtype == DType::kF16) == (number++ % 4 == turn))
        all.add(make(form, dtype), cuda::print_mma_kernel);
  all.expect(check);
}

void expect_one(CaseBuilder built, const Cases::Check& check) {
  Cases one;
  one.add(std::move(built), cuda::print_mma_kernel);
  one.expect(check);
}

TEST(PrintedAttentionMma, IsNearItsFormula) { expect_forms(attention_of, 3, expect_forward); }
TEST(PrintedAttentionMma, TheGradientIsNearItsFormula) {
  expect_forms(gradient_of, 1, expect_backward);
}

// So many heads that a warp has two tiles of rows, and blocks are of several groups of heads.
constexpr AttentionCase kManyHeads = {
    .batch = 12, .heads = 11, .queries = 70, .keys = 70, .depth = 16, .width = 16, .causal = true};

TEST(PrintedAttentionMma, TwoTilesOfRowsAWarp) {
  Cases all;
  AttentionCase form = kManyHeads;
  all.add(attention_of(form, DType::kBF16), cuda::print_mma_kernel);
  form.packed = true, form.causal = false;
  if (is_full_scale()) all.add(attention_of(form, DType::kF16), cuda::print_mma_kernel);
  EXPECT_EQ(all.kernel(0).launches[0].blocks, 132u);
  all.expect(expect_forward);
  expect_one(gradient_of(kManyHeads, DType::kBF16), expect_backward);
}

// Queries that see no key, or one in the third block alone.
TEST(PrintedAttentionMma, RowsOfFewKeys) {
  constexpr int64_t kKeys = 200;
  CaseBuilder b(DType::kBF16, 11);
  const Value q = b.input({1, 1, 3, 16}), k = b.input({1, 1, kKeys, 16}),
              v = b.input({1, 1, kKeys, 16});
  std::vector<double> mask(3 * kKeys, 0.0);
  mask[kKeys + 150] = 1.0;
  const Value y = attention(q, k, v, {.mask = b.given({DType::kBool, {1, 1, 3, kKeys}}, mask)});
  b.finish({y, {y.node, 1}});
  expect_one(std::move(b), expect_forward);
}

// Scores in the hundreds: the maximum jumps from block to block.
TEST(PrintedAttentionMma, LargeScores) {
  CaseBuilder b(DType::kF16, 10);
  const Value q = b.input({1, 1, 70, 32}, -8, 8), k = b.input({1, 1, 300, 32}, -8, 8),
              v = b.input({1, 1, 300, 32});
  const Value y = attention(q, k, v, {.scale = 1.0});
  b.finish({y, {y.node, 1}});
  expect_one(std::move(b), expect_forward);
}

// Attention keeps softmax's rules: a number that is not finite reaches its row alone, or all rows
// that see its key.
TEST(PrintedAttentionMma, NumbersThatAreNotFinite) {
  constexpr int64_t kRows = 5, kDepth = 16, kKeys = 70;
  for (const double special : {static_cast<double>(INFINITY), static_cast<double>(NAN)}) {
    CaseBuilder b(DType::kBF16, 13);
    std::vector<double> queries(kRows * kDepth, 0.5), keys(kKeys * kDepth, 0.25);
    queries[2 * kDepth] = special;
    const Value y = attention(b.given({DType::kBF16, {1, 1, kRows, kDepth}}, queries),
                              b.given({DType::kBF16, {1, 1, kKeys, kDepth}}, keys),
                              b.input({1, 1, kKeys, 16}));
    b.finish({y, {y.node, 1}});
    expect_one(std::move(b), [](const Graph& lone, const auto& operands, const auto& got) {
      const NamedTensors wanted = evaluate(lone, *make_backend("ref"), operands);
      for (int64_t i = 0; i < kRows * 16; ++i)
        EXPECT_EQ(std::isnan(got.at("0").at(i)), std::isnan(wanted.at("0").at(i))) << i;
    });
  }
}

}  // namespace
}  // namespace ridge::test
