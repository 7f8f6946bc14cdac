// Attention in the forms that exporters write; what is read elsewhere or is no attention stays.
#include <cmath>
#include <limits>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "tests/compile/pattern_cases.h"

namespace ridge::test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Operands {
  Value q, k, v;
};
using Formula = std::function<Value(const Operands&)>;

// q (.., 5, 4), k (.., keys, 4) and v (.., keys, 3).
Graph recognized(const Shape& front, int64_t keys, const Formula& formula) {
  return run_pass(
      recognize_attention,
      [&](Graph& graph) {
        const auto operand = [&](const char* name, int64_t rows, int64_t columns) {
          Shape shape = front;
          shape.insert(shape.end(), {rows, columns});
          return data(graph, name, shape);
        };
        graph.add_output(
            "y", formula({operand("q", 5, 4), operand("k", keys, 4), operand("v", keys, 3)}));
      },
      1e-5);
}

const Attention* attention_of(const Graph& graph) {
  for (const auto& node : graph.nodes())
    if (node->is<Attention>()) return &node->op_as<Attention>();
  return nullptr;
}

Value scores_of(const Operands& o) { return matmul(o.q, o.k, false, true); }

Value number(Value like, double value) { return constant(like.graph(), {DType::kF32, {}}, value); }

TEST(RecognizeAttention, ScalesAreReadWhereverTheyStand) {
  const std::pair<Formula, double> scaled[] = {
      {[](const Operands& o) { return scores_of(o); }, 1},
      {[](const Operands& o) { return matmul(o.q, transpose_last(o.k)) / 2.0; }, 0.5},
      {[](const Operands& o) { return matmul(o.q, transpose_last(o.k)) * 0.25; }, 0.25},
      {[](const Operands& o) { return matmul(o.q * 0.5, transpose_last(o.k)); }, 0.5},
      {[](const Operands& o) { return matmul(o.q * 0.5, transpose_last(o.k) * 0.5); }, 0.25},
      {[](const Operands& o) { return matmul(o.q / 2.0, transpose_last(o.k * 0.5)) * 2.0; }, 0.5},
  };
  for (const Shape& front : {Shape{2, 3}, Shape{6}})
    for (const auto& [scores, scale] : scaled) {
      const Graph graph =
          recognized(front, 7, [&](const Operands& o) { return matmul(softmax(scores(o)), o.v); });
      ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
      EXPECT_EQ(attention_of(graph)->scale, scale);
      EXPECT_FALSE(attention_of(graph)->causal);
      EXPECT_EQ(count_of(graph, "softmax") + count_of(graph, "matmul"), 0) << print(graph);
    }
}

// Heads between tokens and channels, as the graphs of transformers have them.
TEST(RecognizeAttention, OperandsByTokenAreReadAsTheyLie) {
  for (const bool swaps_keys : {false, true}) {
    const Graph graph = run_pass(
        recognize_attention,
        [&](Graph& made) {
          const auto heads = [&](const char* name, std::vector<int64_t> perm) {
            return transpose(reshape(data(made, name, {2, 5, 12}), {2, 5, 3, 4}), std::move(perm));
          };
          const Value q = heads("q", {0, 2, 1, 3});
          const Value k =
              swaps_keys ? transpose_last(heads("k", {0, 2, 1, 3})) : heads("k", {0, 2, 3, 1});
          const Value y = matmul(softmax(matmul(q, k) / 2.0), heads("v", {0, 2, 1, 3}));
          made.add_output("y", reshape(transpose(y, {0, 2, 1, 3}), {2, 5, 12}));
        },
        1e-5);
    ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_TRUE(attention_of(graph)->by_token);
    EXPECT_EQ(count_of(graph, "transpose"), 2) << print(graph);  // both of the result
  }
}

// PyTorch has tokens before samples: of one sample that is the same.
TEST(RecognizeAttention, TokensBeforeTheOnlySampleAreReadAsTheyLie) {
  for (const int64_t samples : {1, 2}) {
    const Graph graph = run_pass(
        recognize_attention,
        [&](Graph& made) {
          const auto heads = [&](const char* name) {
            const Value flat = transpose(data(made, name, {5, samples * 3, 4}), {1, 0, 2});
            return reshape(flat, {samples, 3, 5, 4});
          };
          const Value s = matmul(heads("q"), transpose_last(heads("k"))) / 2.0;
          made.add_output("y", matmul(softmax(s), heads("v")));
        },
        1e-5);
    ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_EQ(attention_of(graph)->by_token, samples == 1);
  }
}

// One projection for queries, keys and values.
TEST(RecognizeAttention, PackedOperandsAreReadAsTheyLie) {
  const auto third = [](Value all, int64_t i, Shape shape) {
    return reshape(slice(all, 0, i, i + 1), std::move(shape));
  };
  // Packed as (B, T, 3, H, D), with queries that are scaled.
  const Graph windows = run_pass(
      recognize_attention,
      [&](Graph& made) {
        const Value all =
            transpose(reshape(data(made, "x", {2, 5, 36}), {2, 5, 3, 3, 4}), {2, 0, 3, 1, 4});
        const Shape heads{2, 3, 5, 4};
        const Value s = matmul(third(all, 0, heads) * 0.5, transpose_last(third(all, 1, heads)));
        made.add_output("y", matmul(softmax(s), third(all, 2, heads)));
      },
      1e-5);
  // PyTorch has it as (T, B, 3 H D), whose thirds come first.
  for (const int64_t samples : {1, 2}) {
    const Graph graph = run_pass(
        recognize_attention,
        [&](Graph& made) {
          const Value x = reshape(data(made, "x", {5, samples, 36}), {1, 5, samples, 3, 12});
          const Value all = reshape(transpose(x, {3, 1, 2, 0, 4}), {3, 5, samples, 12});
          const auto heads = [&](int64_t i) {
            const Value flat = transpose(third(all, i, {5, samples * 3, 4}), {1, 0, 2});
            return reshape(flat, {samples, 3, 5, 4});
          };
          const Value s = matmul(heads(0), transpose_last(heads(1))) / 2.0;
          made.add_output("y", matmul(softmax(s), heads(2)));
        },
        1e-5);
    ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_EQ(attention_of(graph)->is_packed(), samples == 1) << print(graph);
  }
  ASSERT_EQ(count_of(windows, "attention"), 1) << print(windows);
  EXPECT_TRUE(attention_of(windows)->is_packed()) << print(windows);
  EXPECT_EQ(count_of(windows, "slice"), 0) << print(windows);
}

// The thirds in another order are no packed operand.
TEST(RecognizeAttention, OtherThirdsAreNotPacked) {
  const Graph graph = run_pass(
      recognize_attention,
      [](Graph& made) {
        const Value all =
            transpose(reshape(data(made, "x", {2, 5, 36}), {2, 5, 3, 3, 4}), {2, 0, 3, 1, 4});
        const auto third = [&](int64_t i) {
          return reshape(slice(all, 0, i, i + 1), {2, 3, 5, 4});
        };
        const Value s = matmul(third(1), third(0), false, true);
        made.add_output("y", matmul(softmax(s), third(2)));
      },
      1e-5);
  ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_FALSE(attention_of(graph)->is_packed()) << print(graph);
}

// Operands of which one is made otherwise stay as they are.
TEST(RecognizeAttention, OtherOperandsKeepTheirTransposes) {
  const Graph graph = run_pass(
      recognize_attention,
      [](Graph& made) {
        const Value q = transpose(data(made, "q", {2, 5, 3, 4}), {0, 2, 1, 3});
        const Value s = matmul(q, data(made, "k", {2, 3, 7, 4}), false, true);
        made.add_output("y", matmul(softmax(s), data(made, "v", {2, 3, 7, 4})));
      },
      1e-5);
  ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_FALSE(attention_of(graph)->by_token);
  EXPECT_EQ(count_of(graph, "transpose"), 1) << print(graph);
}

TEST(RecognizeAttention, TakesMasks) {
  const std::pair<Shape, Shape> shapes[] = {{{2, 3}, {7}},
                                            {{2, 3}, {5, 7}},
                                            {{2, 3}, {2, 1, 1, 7}},
                                            {{2, 3}, {1, 3, 5, 7}},
                                            {{6}, {7}},
                                            {{6}, {6, 1, 7}}};
  using Masked = std::function<Value(Value s, Value keys)>;
  const Masked forms[] = {
      [](Value s, Value keys) { return s + where(keys, number(s, 0), number(s, -kInfinity)); },
      [](Value s, Value keys) {
        return where(logical_not(keys), number(s, -kInfinity), number(s, 0)) + s;
      },
      [](Value s, Value keys) { return where(keys, s, number(s, -kInfinity)); },
      [](Value s, Value keys) { return where(logical_not(keys), number(s, -kInfinity), s); },
  };
  for (const auto& [front, of] : shapes)
    for (const Masked& masked : forms) {
      const Graph graph = recognized(front, 7, [&, of = of](const Operands& o) {
        const Value keys = data(o.q.graph(), "mask", of, DType::kBool);
        return matmul(softmax(masked(scores_of(o) / 2.0, keys)), o.v);
      });
      EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
      EXPECT_EQ(count_of(graph, "where"), 0) << print(graph);
    }
}

Value causal_mask(const Operands& o) {
  const TensorType square{DType::kI64, {5, 5}};
  return ge(iota(o.q.graph(), square, 0), iota(o.q.graph(), square, 1));
}

TEST(RecognizeAttention, CausalMasksAreAField) {
  const auto listed = [](const Operands& o) {
    std::vector<double> values(25);
    for (size_t i = 0; i < 25; ++i) values[i] = i % 5 <= i / 5 ? 1 : 0;
    return constant(o.q.graph(), {DType::kBool, {1, 1, 5, 5}}, values);
  };
  const auto of_lines = [](const Operands& o) {
    const Value line = iota(o.q.graph(), {DType::kI64, {5}}, 0);
    return le(line, reshape(line, {5, 1}));
  };
  const auto reshaped = [](const Operands& o) { return reshape(causal_mask(o), {1, 1, 5, 5}); };
  const std::function<Value(const Operands&)> masks[] = {causal_mask, listed, of_lines, reshaped};
  for (const double low : {-kInfinity, -3.4028234663852886e38})
    for (const auto& mask : masks)
      for (const bool is_sum : {false, true}) {
        const Graph graph = recognized({2, 3}, 5, [&](const Operands& o) {
          const Value s = scores_of(o) / 2.0;
          const Value masked = is_sum ? s + where(mask(o), number(s, 0), number(s, low))
                                      : where(mask(o), s, number(s, low));
          return matmul(softmax(masked), o.v);
        });
        ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
        EXPECT_TRUE(attention_of(graph)->causal);
      }
}

// The first keys are padding: the first queries have no other key to read, and large finite numbers
// give them the mean of all that they are forbidden by one mask alone.
TEST(RecognizeAttention, ALowCausalMaskBesidePaddingIsABias) {
  constexpr double kLow = -3.4028234663852886e38;
  const auto keys = [](const Operands& o) {
    return constant(o.q.graph(), {DType::kBool, {1, 1, 1, 5}}, {0, 0, 1, 1, 1});
  };
  const auto padding = [&](const Operands& o) { return (1.0 - cast(keys(o), DType::kF32)) * kLow; };
  const auto replaced = [](const Operands& o, Value s) {
    return where(causal_mask(o), s, number(s, kLow));
  };
  const auto added = [](const Operands& o, Value s) {
    return s + where(causal_mask(o), number(s, 0), number(s, kLow));
  };
  const Formula biases[] = {
      [&](const Operands& o) { return replaced(o, scores_of(o) / 2.0) + padding(o); },
      [&](const Operands& o) { return added(o, scores_of(o)) + padding(o); },
      [&](const Operands& o) { return added(o, scores_of(o) + padding(o)); },
      [&](const Operands& o) {
        const Value s = replaced(o, scores_of(o));
        return where(keys(o), s, number(s, -kInfinity));
      },
      [&](const Operands& o) {
        const Value s = scores_of(o);
        return added(o, where(keys(o), s, number(s, -kInfinity)));
      },
  };
  for (const Formula& formula : biases) {
    const Graph graph =
        recognized({2, 3}, 5, [&](const Operands& o) { return matmul(softmax(formula(o)), o.v); });
    ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_FALSE(attention_of(graph)->causal);
  }
  // If the mask replaces a score, nothing that was added to it counts any more.
  const Formula others[] = {
      [&](const Operands& o) { return replaced(o, scores_of(o) + padding(o)); },
      [&](const Operands& o) {
        const Value s = scores_of(o);
        return replaced(o, where(keys(o), s, number(s, -kInfinity)));
      },
      [&](const Operands& o) {
        const Value s = scores_of(o);
        return replaced(o, where(keys(o), s, number(s, kLow)));
      },
  };
  for (const Formula& formula : others) {
    const Graph graph =
        recognized({2, 3}, 5, [&](const Operands& o) { return matmul(softmax(formula(o)), o.v); });
    EXPECT_EQ(count_of(graph, "attention"), 0) << print(graph);
  }
}

TEST(RecognizeAttention, ACausalMaskIsTakenOutOfAConjunction) {
  const Graph graph = recognized({2, 3}, 5, [](const Operands& o) {
    const Value s = scores_of(o);
    const Value keys = data(o.q.graph(), "m", {2, 1, 1, 5}, DType::kBool);
    return matmul(softmax(where(logical_and(causal_mask(o), keys), s, number(s, -kInfinity))), o.v);
  });
  ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_TRUE(attention_of(graph)->causal);
  EXPECT_EQ(count_of(graph, "iota"), 0) << print(graph);
}

TEST(RecognizeAttention, SeveralMasksAllowWhatAllAllow) {
  const Graph graph = recognized({2, 3}, 5, [](const Operands& o) {
    Graph& graph = o.q.graph();
    const Value a = data(graph, "a", {2, 1, 1, 5}, DType::kBool);
    const Value b = data(graph, "b", {3, 1, 5}, DType::kBool);
    const Value s = scores_of(o);
    const Value low = number(s, -kInfinity);
    const Value masked = where(causal_mask(o), s, low) + where(a, number(s, 0), low);
    return matmul(softmax(where(b, masked, low)), o.v);
  });
  ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_TRUE(attention_of(graph)->causal);
}

// The op gives zeros where no key is allowed, and so does PyTorch's export.
TEST(RecognizeAttention, TakesZerosInPlaceOfNan) {
  const Graph graph = recognized({2, 3}, 7, [](const Operands& o) {
    const Value s = scores_of(o);
    const Value keys = data(o.q.graph(), "q_or_k", {2, 1, 5, 7}, DType::kBool);
    const Value w = softmax(s + where(logical_not(keys), number(s, -kInfinity), number(s, 0)));
    return matmul(where(ne(w, w), number(s, 0), w), o.v);
  });
  EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
  EXPECT_EQ(count_of(graph, "ne"), 0) << print(graph);
}

Value keys_of(const Operands& o, const char* name) {
  return data(o.q.graph(), name, {5, 7}, DType::kBool);
}

TEST(RecognizeAttention, WhatIsAddedIsABias) {
  const Formula formulas[] = {
      // Positions: of heads, of all that are equal, of each score, subtracted.
      [](const Operands& o) { return scores_of(o) / 2.0 + data(o.q.graph(), "b", {3, 5, 7}); },
      [](const Operands& o) { return data(o.q.graph(), "b", {7}) + scores_of(o); },
      [](const Operands& o) { return data(o.q.graph(), "b", {2, 3, 5, 7}) + scores_of(o) * 2.0; },
      [](const Operands& o) { return scores_of(o) - data(o.q.graph(), "b", {5, 1}); },
      // Several, one of which is a product too.
      [](const Operands& o) {
        const Value positions = matmul(o.q, data(o.q.graph(), "r", {7, 4}), false, true);
        return scores_of(o) + positions + data(o.q.graph(), "b", {2, 1, 1, 7});
      },
      // Masks of integers, as transformers has them.
      [](const Operands& o) {
        const Value mask = data(o.q.graph(), "m", {2, 7}, DType::kBool);
        const Value ones = reshape(cast(mask, DType::kF32), {2, 1, 1, 7});
        return scores_of(o) / 2.0 + (1.0 - ones) * -3.4028234663852886e38;
      },
      [](const Operands& o) {
        const Value s = scores_of(o);
        return where(keys_of(o, "m"), s, number(s, -3.4e38));
      },
      [](const Operands& o) {
        const Value s = scores_of(o);
        return where(logical_not(keys_of(o, "m")), number(s, -3.4e38), s * 0.5);
      },
      // Beside a mask.
      [](const Operands& o) {
        const Value s = scores_of(o) + data(o.q.graph(), "b", {3, 5, 7});
        return where(keys_of(o, "m"), s, number(s, -kInfinity));
      },
      [](const Operands& o) {
        const Value s = scores_of(o);
        return s + where(keys_of(o, "m"), number(s, 1), number(s, -kInfinity));
      },
  };
  for (const Formula& formula : formulas) {
    const Graph graph =
        recognized({2, 3}, 7, [&](const Operands& o) { return matmul(softmax(formula(o)), o.v); });
    EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_EQ(count_of(graph, "softmax"), 0) << print(graph);
  }
}

TEST(RecognizeAttention, ABiasOfOneHead) {
  const Graph graph = recognized({6}, 7, [](const Operands& o) {
    return matmul(softmax(scores_of(o) + data(o.q.graph(), "b", {6, 1, 7})), o.v);
  });
  EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
}

// Swin adds positions for each head, and a mask for each window where these are shifted.
TEST(RecognizeAttention, WindowsHaveTheirBias) {
  const Graph graph = recognized({4, 3}, 7, [](const Operands& o) {
    const Value of_heads = scores_of(o) + data(o.q.graph(), "b", {1, 3, 5, 7});
    const Value of_windows =
        reshape(of_heads, {2, 2, 3, 5, 7}) + data(o.q.graph(), "w", {1, 2, 1, 5, 7});
    return matmul(softmax(reshape(of_windows, {4, 3, 5, 7})), o.v);
  });
  EXPECT_EQ(count_of(graph, "attention"), 1) << print(graph);
}

// Two heads of keys for six of queries.
TEST(RecognizeAttention, GroupsReadTheirKeysOnce) {
  const auto graph_with = [](bool of_queries) {
    return run_pass(
        recognize_attention,
        [&](Graph& made) {
          const auto repeated = [&](const char* name) {
            const Value few = reshape(data(made, name, {2, 2, 7, 4}), {2, 2, 1, 7, 4});
            return reshape(broadcast(few, {2, 2, 3, 7, 4}), {2, 6, 7, 4});
          };
          const Value q = data(made, "q", {2, 6, 5, 4});
          const Value s = matmul(q, transpose_last(repeated("k"))) / 2.0;
          const Value keys = data(made, "m", {2, 1, of_queries ? 5 : 1, 7}, DType::kBool);
          const Value w = softmax(where(keys, s, number(s, -kInfinity)));
          made.add_output("y", matmul(w, repeated("v")));
        },
        1e-5);
  };
  EXPECT_EQ(count_of(graph_with(false), "broadcast"), 0) << print(graph_with(false));
  const Graph apart = graph_with(true);
  EXPECT_EQ(count_of(apart, "attention"), 1) << print(apart);
  EXPECT_EQ(count_of(apart, "broadcast"), 2) << print(apart);
}

TEST(RecognizeAttention, OtherFormulasStay) {
  const Formula others[] = {
      // The scores are read twice; a number, for which softmax has weights, takes the place of one;
      // a low one does so beside a bias, or beside another one.
      [](const Operands& o) {
        const Value s = scores_of(o);
        return matmul(softmax(s + slice(s, -2, 0, 1)), o.v);
      },
      [](const Operands& o) {
        const Value s = scores_of(o);
        return matmul(softmax(where(keys_of(o, "m"), s, number(s, -10000))), o.v);
      },
      [](const Operands& o) {
        const Value s = scores_of(o) + data(o.q.graph(), "b", {3, 5, 7});
        return matmul(softmax(where(keys_of(o, "m"), s, number(s, -3.4e38))), o.v);
      },
      [](const Operands& o) {
        const Value s = scores_of(o), low = number(s, -3.4e38);
        return matmul(softmax(where(keys_of(o, "m"), where(keys_of(o, "n"), s, low), low)), o.v);
      },
      // A NaN, which the bias of a query may give, becomes 0.
      [](const Operands& o) {
        const Value s = scores_of(o);
        const Value w = softmax(s + data(o.q.graph(), "b", {3, 5, 7}));
        return matmul(where(ne(w, w), number(s, 0), w), o.v);
      },
      // Softmax over queries; a number for each query; a number is added.
      [](const Operands& o) { return matmul(softmax(scores_of(o), -2), o.v); },
      [](const Operands& o) { return matmul(softmax(scores_of(o) * slice(o.q, -1, 0, 1)), o.v); },
      [](const Operands& o) { return matmul(softmax(scores_of(o) + 1.0), o.v); },
      // Weights are scaled behind softmax.
      [](const Operands& o) { return matmul(softmax(scores_of(o)) * 2.0, o.v); },
  };
  for (const Formula& formula : others) {
    const Graph graph = recognized({2, 3}, 7, formula);
    EXPECT_EQ(count_of(graph, "attention"), 0) << print(graph);
  }
}

TEST(RecognizeAttention, AlmostCausalMasksAreNot) {
  const auto strict = [](const Operands& o) {
    const TensorType square{DType::kI64, {5, 5}};
    return gt(iota(o.q.graph(), square, 0), iota(o.q.graph(), square, 1));
  };
  const auto mirrored = [](const Operands& o) {
    const TensorType square{DType::kI64, {5, 5}};
    return le(iota(o.q.graph(), square, 0), iota(o.q.graph(), square, 1));
  };
  const std::function<Value(const Operands&)> masks[] = {strict, mirrored};
  for (const auto& mask : masks) {
    const Graph graph = recognized({2, 3}, 5, [&](const Operands& o) {
      const Value s = scores_of(o);
      return matmul(softmax(where(mask(o), s, number(s, -3.4e38))), o.v);
    });
    ASSERT_EQ(count_of(graph, "attention"), 1) << print(graph);
    EXPECT_FALSE(attention_of(graph)->causal);
  }
}

TEST(RecognizeAttention, WhatOthersReadIsNotMatchedAway) {
  for (const int extra : {0, 1}) {
    const Graph graph = run_pass(
        recognize_attention,
        [&](Graph& made) {
          const Value q = data(made, "q", {2, 3, 5, 4}), k = data(made, "k", {2, 3, 7, 4});
          const Value s = matmul(q, k, false, true), w = softmax(s);
          made.add_output("y", matmul(w, data(made, "v", {2, 3, 7, 4})));
          made.add_output("extra", extra == 0 ? s : w);
        },
        1e-5);
    EXPECT_EQ(count_of(graph, "attention"), 0) << print(graph);
  }
}

TEST(RecognizeAttention, AGraphThatTrainsKeepsItsOps) {
  const Graph graph = run_pass(
      recognize_attention,
      [](Graph& made) {
        const Value q = data(made, "q", {2, 3, 5, 4}), k = data(made, "k", {2, 3, 7, 4});
        const Value y = matmul(softmax(matmul(q, k, false, true)), data(made, "v", {2, 3, 7, 4}));
        made.add_output("dq", gradients(reduce_sum(y * y), {{q}}).at(0));
      },
      1e-4);
  EXPECT_EQ(count_of(graph, "attention"), 0) << print(graph);
}

}  // namespace
}  // namespace ridge::test
