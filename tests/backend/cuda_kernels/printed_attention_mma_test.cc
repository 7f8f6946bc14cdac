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

using Matrix = std::vector<double>;

// What rounding to nearest takes at most off a number of size 1, and off a small one.
struct Rounding {
  double relative, least;
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
  Matrix q, k, v, dy, y, logsumexp;
  std::vector<bool> allowed;

  static double f32(int64_t terms) { return static_cast<double>(terms + 2) * 0x1p-23; }
  double& of(Matrix& m, int64_t columns, int64_t i, int64_t j) const {
    return m[static_cast<size_t>(i * columns + j)];
  }
  double of(const Matrix& m, int64_t columns, int64_t i, int64_t j) const {
    return m[static_cast<size_t>(i * columns + j)];
  }

  // Scores, and what they are off by.
  void scores(Matrix& s, Matrix& off) const {
    s.assign(static_cast<size_t>(queries * keys), 0.0);
    off = s;
    for (int64_t i = 0; i < queries; ++i)
      for (int64_t j = 0; j < keys; ++j) {
        double sum = 0.0, size = 0.0;
        for (int64_t d = 0; d < depth; ++d) {
          const double term = of(q, depth, i, d) * of(k, depth, j, d);
          sum += term, size += std::fabs(term);
        }
        of(s, keys, i, j) = sum * scale;
        of(off, keys, i, j) = scale * size * f32(depth);
      }
  }
};

struct Bounded {
  Matrix value, off;
};

// y, and the logsumexps in `rows`.
Bounded forward(const Head& h, Bounded& rows) {
  Matrix s, off;
  h.scores(s, off);
  Bounded y{Matrix(static_cast<size_t>(h.queries * h.width)), {}};
  y.off = y.value;
  rows = {Matrix(static_cast<size_t>(h.queries)), Matrix(static_cast<size_t>(h.queries))};
  for (int64_t i = 0; i < h.queries; ++i) {
    const auto is_allowed = [&](int64_t j) {
      return h.allowed[static_cast<size_t>(i * h.keys + j)];
    };
    double max = -INFINITY, sum = 0.0, worst = 0.0;
    for (int64_t j = 0; j < h.keys; ++j)
      if (is_allowed(j)) max = std::max(max, h.of(s, h.keys, i, j));
    if (max == -INFINITY) continue;  // zeros, exactly
    for (int64_t j = 0; j < h.keys; ++j)
      if (is_allowed(j)) {
        sum += std::exp(h.of(s, h.keys, i, j) - max);
        worst = std::max(worst, h.of(off, h.keys, i, j) + 0x1p-22 * std::fabs(max));
      }
    const auto row = static_cast<size_t>(i);
    rows.value[row] = max + std::log(sum);
    rows.off[row] = worst + Head::f32(h.keys) + 0x1p-22 * (1 + std::fabs(rows.value[row]));
    const double relative = 2 * std::expm1(worst) + 2 * Head::f32(h.keys) + 0x1p-20;
    for (int64_t c = 0; c < h.width; ++c) {
      double value = 0.0, size = 0.0, small = 0.0;
      for (int64_t j = 0; j < h.keys; ++j) {
        if (!is_allowed(j)) continue;
        const double weight = std::exp(h.of(s, h.keys, i, j) - max) / sum;
        value += weight * h.of(h.v, h.width, j, c);
        size += weight * std::fabs(h.of(h.v, h.width, j, c));
        small += std::fabs(h.of(h.v, h.width, j, c)) / sum;
      }
      const double made = size * (h.rounding.relative + relative) + small * h.rounding.least;
      h.of(y.value, h.width, i, c) = value;
      h.of(y.off, h.width, i, c) =
          made + (std::fabs(value) + made) * h.rounding.relative + h.rounding.least;
    }
  }
  return y;
}

// The products of a gradient, out(i, c) = sum over j of weights(i, j) x(j, c), rounded.
Bounded product(const Head& h,
                const Bounded& weights,
                const Matrix& x,
                int64_t rows,
                int64_t terms,
                int64_t columns,
                bool turned) {
  Bounded out{Matrix(static_cast<size_t>(rows * columns)), {}};
  out.off = out.value;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c) {
      double value = 0.0, off = 0.0, size = 0.0;
      for (int64_t j = 0; j < terms; ++j) {
        const auto at = static_cast<size_t>(turned ? j * rows + i : i * terms + j);
        const double factor = h.of(x, columns, j, c), weight = weights.value[at];
        const double before = weights.off[at];
        value += weight * factor;
        size += std::fabs(weight * factor);
        off += std::fabs(factor) *
               (before + (std::fabs(weight) + before) * h.rounding.relative + h.rounding.least);
      }
      off += size * Head::f32(terms);
      h.of(out.value, columns, i, c) = value;
      h.of(out.off, columns, i, c) =
          off + (std::fabs(value) + off) * h.rounding.relative + h.rounding.least;
    }
  return out;
}

// dq, dk and dv.
std::array<Bounded, 3> backward(const Head& h) {
  Matrix s, off;
  h.scores(s, off);
  Bounded weights{Matrix(s.size()), Matrix(s.size())}, dscores = weights;
  for (int64_t i = 0; i < h.queries; ++i) {
    const double logsumexp = h.logsumexp[static_cast<size_t>(i)];
    double delta = 0.0, delta_size = 0.0;
    for (int64_t c = 0; c < h.width; ++c) {
      const double term = h.of(h.y, h.width, i, c) * h.of(h.dy, h.width, i, c);
      delta += term, delta_size += std::fabs(term);
    }
    for (int64_t j = 0; j < h.keys; ++j) {
      const auto at = static_cast<size_t>(i * h.keys + j);
      if (!h.allowed[at]) continue;
      const double weight = std::exp(s[at] - logsumexp);
      const double relative =
          std::expm1(off[at] + 0x1p-22 * (std::fabs(s[at]) + std::fabs(logsumexp))) + 0x1p-20;
      double dweight = 0.0, size = 0.0;
      for (int64_t c = 0; c < h.width; ++c) {
        const double term = h.of(h.dy, h.width, i, c) * h.of(h.v, h.width, j, c);
        dweight += term, size += std::fabs(term);
      }
      const double difference = (dweight - delta) * h.scale;
      const double difference_off = h.scale * (size + delta_size) * Head::f32(h.width);
      weights.value[at] = weight;
      weights.off[at] = weight * relative;
      dscores.value[at] = weight * difference;
      dscores.off[at] =
          weight * (1 + relative) * difference_off + weight * relative * std::fabs(difference);
    }
  }
  return {product(h, dscores, h.k, h.queries, h.keys, h.depth, false),
          product(h, dscores, h.q, h.keys, h.queries, h.depth, true),
          product(h, weights, h.dy, h.keys, h.queries, h.width, true)};
}

// The head's rows out of a tensor.
Matrix rows_of(const Tensor& tensor,
               const HeadLayout& layout,
               int64_t batch,
               int64_t head,
               int64_t rows,
               int64_t columns) {
  Matrix m;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t c = 0; c < columns; ++c)
      m.push_back(tensor.at(layout.begin + batch * layout.batch_stride + head * layout.head_stride +
                            i * layout.row_stride + c));
  return m;
}

void expect_within(const Matrix& got, const Bounded& wanted, const char* what) {
  ASSERT_EQ(got.size(), wanted.value.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_LE(std::fabs(got[i] - wanted.value[i]), wanted.off[i])
        << what << ", element " << i << ": " << got[i] << ", not " << wanted.value[i];
}

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
             .dy = {},
             .y = {},
             .logsumexp = {},
             .allowed = {}};
      if (others != 0) {
        h.y = rows(n, l.y, l.queries, l.width);
        h.dy = rows(n + 2, l.y, l.queries, l.width);
        for (int64_t i = 0; i < l.queries; ++i)
          h.logsumexp.push_back(from(n + 1).at((b * l.heads + head) * l.queries + i));
      }
      const Shape shape = is_masked ? node.inputs[n + others].shape() : Shape{1, 1, 1, 1};
      for (int64_t i = 0; i < l.queries; ++i)
        for (int64_t j = 0; j < l.keys; ++j) {
          const int64_t at =
              ((b % shape[0] * shape[1] + head % shape[1]) * shape[2] + i % shape[2]) * shape[3] +
              j;
          h.allowed.push_back((!form.causal || j <= i) &&
                              (!is_masked || from(n + others).at(at) != 0.0));
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
                  Bounded rows;
                  const Bounded y = forward(h, rows);
                  expect_within(rows_of(got.at("0"), l.y, b, head, l.queries, l.width), y, "y");
                  const HeadLayout by_rows{0, l.heads * l.queries, l.queries, 1};
                  expect_within(
                      rows_of(got.at("1"), by_rows, b, head, l.queries, 1), rows, "logsumexp");
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

TEST(PrintedAttentionMma, IsNearItsFormula) {
  Cases all;
  size_t number = 0;
  for (const AttentionCase& form : kForms)
    for (const DType dtype : {DType::kBF16, DType::kF16})
      if (is_full_scale() || (dtype == DType::kF16) == (number++ % 4 == 3))
        all.add(attention_of(form, dtype), cuda::print_mma_kernel);
  all.expect(expect_forward);
}

// Of so many heads that a warp has two tiles of rows, and blocks are of several groups of heads.
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
  Cases gradients;
  gradients.add(gradient_of(kManyHeads, DType::kBF16), cuda::print_mma_kernel);
  gradients.expect(expect_backward);
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
  Cases all;
  all.add(std::move(b), cuda::print_mma_kernel);
  all.expect(expect_forward);
}

// Scores in the hundreds: the maximum jumps from block to block.
TEST(PrintedAttentionMma, LargeScores) {
  CaseBuilder b(DType::kF16, 10);
  const Value q = b.input({1, 1, 70, 32}, -8, 8), k = b.input({1, 1, 300, 32}, -8, 8),
              v = b.input({1, 1, 300, 32});
  const Value y = attention(q, k, v, {.scale = 1.0});
  b.finish({y, {y.node, 1}});
  Cases all;
  all.add(std::move(b), cuda::print_mma_kernel);
  all.expect(expect_forward);
}

// As softmax has it: what is not finite reaches its row alone, or all that sees its key.
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
    Cases all;
    all.add(std::move(b), cuda::print_mma_kernel);
    all.expect([](const Graph& lone, const NamedTensors& operands, const NamedTensors& got) {
      const NamedTensors wanted = evaluate(lone, *make_backend("ref"), operands);
      for (int64_t i = 0; i < kRows * 16; ++i)
        EXPECT_EQ(std::isnan(got.at("0").at(i)), std::isnan(wanted.at("0").at(i))) << i;
    });
  }
}

TEST(PrintedAttentionMma, TheGradientIsNearItsFormula) {
  Cases all;
  size_t number = 0;
  for (const AttentionCase& form : kForms)
    for (const DType dtype : {DType::kBF16, DType::kF16})
      if (is_full_scale() || (dtype == DType::kF16) == (number++ % 4 == 1))
        all.add(gradient_of(form, dtype), cuda::print_mma_kernel);
  all.expect(expect_backward);
}

}  // namespace
}  // namespace ridge::test
