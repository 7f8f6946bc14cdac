// Transposes move to where they cancel, with the same numbers; their number never grows.
#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "tests/compile/pattern_cases.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

// An image between (N, C, H, W) and (N, H, W, C).
Value to_first(Value x) { return transpose(x, {0, 3, 1, 2}); }
Value to_last(Value x) { return transpose(x, {0, 2, 3, 1}); }

int64_t transposes_left(const std::function<Value(Value)>& formula) {
  const Graph graph = run_pass(cancel_transposes, [&](Graph& made) {
    made.add_output("y", formula(data(made, "x", {2, 4, 5, 3})));
  });
  return count_of(graph, "transpose");
}

Value channels(Value like, const char* name) { return data(like.graph(), name, {3, 1, 1}); }

TEST(CancelTransposes, PastOpsThatLetThemPass) {
  const std::function<Value(Value)> formulas[] = {
      [](Value x) { return to_last(relu(to_first(x))); },
      [](Value x) { return to_last(exp(to_first(x)) * 2.0 + 1.0); },
      // Scale and shift of channels; a number of rank 0.
      [](Value x) {
        const Value y = to_first(x) * channels(x, "scale") + channels(x, "shift");
        return to_last(y * constant(x.graph(), {DType::kF32, {}}, 3.0));
      },
      // A residual.
      [](Value x) {
        const Value y = to_first(x);
        return to_last(relu(to_first(exp(to_last(y))) + y));
      },
      [](Value x) { return to_last(concat({to_first(x), to_first(exp(x))}, 1)); },
      [](Value x) { return to_last(pad(to_first(x), {0, 0, 1, 2}, {0, 1, 0, 3}, 0.5)); },
      [](Value x) { return to_last(cast(cast(to_first(x), DType::kF64), DType::kF32)); },
      // The gate of squeeze and excitation.
      [](Value x) {
        const Value y = to_first(x);
        return to_last(to_first(x) * sigmoid(reduce_mean(y, {2, 3}, true)));
      },
      // A mean over pixels is of the same channels.
      [](Value x) { return reduce_mean(to_first(x), {2, 3}); },
      [](Value x) { return to_last(reduce_max(to_first(x), {1}, true)); },
  };
  for (size_t i = 0; i < std::size(formulas); ++i) EXPECT_EQ(transposes_left(formulas[i]), 0) << i;
}

TEST(CancelTransposes, AReductionKeepsTheOrderOfItsAxes) {
  EXPECT_EQ(transposes_left([](Value x) { return reduce_sum(to_first(x), {2}); }), 1);
  EXPECT_EQ(transposes_left([](Value x) { return reduce_sum(transpose(x, {3, 2, 1, 0}), {0}); }),
            1);
  EXPECT_EQ(transposes_left([](Value x) { return reduce_sum(to_first(x), {0, 1}); }), 0);
}

TEST(CancelTransposes, ABlockOfConvolutionsHasTheOuterOnesAlone) {
  const Graph graph = run_pass(
      cancel_transposes,
      [](Graph& made) {
        const auto conv = [&](Value x, const char* name) {
          const Value w = data(made, name, {3, 3, 4, 4});
          return to_first(conv2d(to_last(x), w, {.padding = {1, 1, 1, 1}}));
        };
        const auto norm = [&](Value x, const char* scale, const char* shift) {
          return x * data(made, scale, {4, 1, 1}) + data(made, shift, {1, 4, 1, 1});
        };
        const Value x = data(made, "x", {2, 4, 6, 6});
        const Value first = relu(norm(conv(x, "w0"), "g0", "b0"));
        const Value second =
            norm(conv(relu(norm(conv(first, "w1"), "g1", "b1")), "w2"), "g2", "b2");
        made.add_output("y", relu(second + first));
      },
      1e-5);
  EXPECT_EQ(count_of(graph, "transpose"), 2) << print(graph);
}

TEST(CancelTransposes, WhatCannotPassStays) {
  // Another permutation; an operand that would need one; a value that others read.
  EXPECT_EQ(transposes_left([](Value x) {
              return to_last(to_first(x) + transpose(reshape(x, {2, 5, 4, 3}), {0, 3, 2, 1}));
            }),
            3);
  EXPECT_EQ(transposes_left(
                [](Value x) { return to_last(to_first(x) + data(x.graph(), "z", {2, 3, 4, 5})); }),
            2);
  const Graph graph = run_pass(cancel_transposes, [&](Graph& made) {
    const Value y = to_first(data(made, "x", {2, 4, 5, 3}));
    made.add_output("y", y);
    made.add_output("z", exp(y));
  });
  EXPECT_EQ(count_of(graph, "transpose"), 1) << print(graph);
}

// Random chains and joins of ops between transposes.
TEST(CancelTransposes, RandomGraphsKeepTheirNumbers) {
  for (int seed = 0; seed < cases(60); ++seed) {
    std::mt19937 random(static_cast<unsigned>(seed));
    const auto draw = [&](size_t count) { return static_cast<int64_t>(random() % count); };
    int64_t before = 0;
    const Graph graph = run_pass(
        cancel_transposes,
        [&](Graph& made) {
          std::vector<Value> values{data(made, "x", {3, 3, 3})};
          for (int i = 0; i < 14; ++i) {
            const Value x = values[static_cast<size_t>(draw(values.size()))];
            const Value y = values[static_cast<size_t>(draw(values.size()))];
            switch (draw(6)) {
              case 0:
              case 1: {
                std::vector<int64_t> perm{0, 1, 2};
                std::shuffle(perm.begin(), perm.end(), random);
                values.push_back(transpose(x, perm));
                break;
              }
              case 2:
                values.push_back(tanh(x));
                break;
              case 3:
                values.push_back(x + y);
                break;
              case 4:
                values.push_back(x * broadcast(reduce_mean(y, {draw(3)}, true), {3, 3, 3}));
                break;
              default:
                values.push_back(slice(concat({x, y}, draw(3)), 0, 0, 3));
                values.back() = values.back().shape() == x.shape() ? values.back() : tanh(y);
            }
          }
          made.add_output("y", values.back() + values[values.size() - 2]);
          made.add_output("z", values[values.size() / 2]);
          before = count_of(made, "transpose");
        },
        1e-5);
    EXPECT_LE(count_of(graph, "transpose"), before) << "seed " << seed;
  }
}

}  // namespace
}  // namespace ridge::test
