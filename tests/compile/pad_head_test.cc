// Heads whose columns are no multiple of what the device asks for: the bits of the plain graph,
// with NaN in the padding too; where nothing is padded; and what a plan says of it.
#include "ridge/compile/passes/pad_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/compile/pipeline.h"
#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/rewrite.h"
#include "ridge/graph/text.h"
#include "ridge/run/backends.h"
#include "ridge/run/compare.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"
#include "tests/support/errors.h"
#include "tests/support/lazy_backend.h"
#include "tests/support/scale.h"

namespace ridge::test {
namespace {

constexpr int64_t kMultiple = 64;

struct Head {
  int64_t batch = 2, length = 3, width = 4, columns = 300;
  bool row_major = false;  ///< The weight is (width, columns).
  bool tied = false;       ///< The inputs are rows of the weight, looked up.
  bool bias = false;
  bool counts = false;  ///< How many are right is asked, too.
  double smoothing = 0.0;
  double wrong_label = 0.0;  ///< Label of the last row, unless 0.
};

struct Built {
  Graph graph;
  NamedTensors inputs;
};

// Outputs y0: each loss; then the gradients of their sum, and how many are right.
Built build(const Head& head, uint64_t seed) {
  CaseBuilder builder(DType::kF32, seed);
  const Value weight = builder.input(head.row_major ? Shape{head.width, head.columns}
                                                    : Shape{head.columns, head.width});
  const Shape rows{head.batch, head.length};
  const Value x = head.tied
                      ? embedding(weight, builder.indices(DType::kI32, rows, 0, head.columns - 1))
                      : builder.input({head.batch, head.length, head.width});
  Value logits = matmul(tanh(x), weight, false, !head.row_major);
  std::vector<Value> wanted{weight, x};
  if (head.bias) {
    wanted.push_back(builder.input({head.columns}));
    logits = logits + wanted.back();
  }
  std::vector<double> labels;
  for (int64_t i = 0; i < numel(rows); ++i)
    labels.push_back(builder.random().chance(0.2)
                         ? -100.0
                         : static_cast<double>(builder.random().integer(0, head.columns - 1)));
  if (head.wrong_label != 0.0) labels.back() = head.wrong_label;
  const Value y = builder.given({DType::kI64, rows}, labels);
  const Value each = cross_entropy(logits, y, {.label_smoothing = head.smoothing});
  std::vector<Value> outputs{each};
  for (const Value& gradient : gradients(reduce_sum(each), wanted)) outputs.push_back(gradient);
  if (head.counts) outputs.push_back(reduce_sum(cast(eq(argmax(logits, -1), y), DType::kF32)));
  builder.finish(outputs);
  return {std::move(builder.graph()), builder.tensors()};
}

Graph compiled(const Graph& graph,
               int64_t multiple,
               DType precision = DType::kBF16,
               bool tf32 = false) {
  LazyBackend device({.stores_16_bits = true, .column_multiple = multiple});
  Graph made = graph.clone();
  run_pipeline(made, device, {.precision = precision, .tf32 = tf32, .verify_each = true});
  return made;
}

std::string text_of(const Head& head) {
  return fmt::format("{}x{} width {} columns {}{}{}{} smoothing {}",
                     head.batch,
                     head.length,
                     head.width,
                     head.columns,
                     head.row_major ? " row_major" : "",
                     head.tied ? " tied" : "",
                     head.counts ? " counts" : "",
                     head.smoothing);
}

void expect_same_bits(const NamedTensors& got, const NamedTensors& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [name, tensor] : want) EXPECT_TRUE(got.at(name).same_bits(tensor)) << name;
}

// The reference sums in double, in order: zeros behind change no bit.
TEST(PadHead, RandomHeadsKeepTheirBits) {
  const auto ref = make_backend("ref");
  Random random(5);
  int padded = 0;
  for (int i = 0; i < cases(60); ++i) {
    Head head{.batch = random.integer(1, 3),
              .length = random.integer(2, 4),
              .width = random.integer(1, 5)};
    // Around a multiple as often as anywhere.
    head.columns = random.chance(0.5) ? kMultiple * random.integer(4, 9) + random.integer(-2, 2)
                                      : random.integer(100, 700);
    head.row_major = random.chance(0.5);
    head.tied = !head.row_major && random.chance(0.5);
    head.counts = random.chance(0.3);
    const DType precision = random.chance(0.5) ? DType::kBF16 : DType::kF16;
    SCOPED_TRACE(text_of(head));
    const Built built = build(head, static_cast<uint64_t>(i));
    const Graph plain = compiled(built.graph, 1, precision);
    const Graph made = compiled(built.graph, kMultiple, precision);
    const auto found = head_paddings(made);
    ASSERT_EQ(found.size(), head.columns >= 256 && head.columns % kMultiple != 0 ? 1u : 0u);
    if (!found.empty()) {
      ++padded;
      EXPECT_EQ(found[0].rows, head.batch * head.length);
      EXPECT_EQ(found[0].columns, head.columns);
      EXPECT_EQ(found[0].stride, (head.columns / kMultiple + 1) * kMultiple);
    }
    expect_same_bits(evaluate(made, *ref, built.inputs), evaluate(plain, *ref, built.inputs));
  }
  EXPECT_GT(padded, cases(60) / 3);
}

// Every product of the head reads and makes rows of a whole multiple, in both directions.
TEST(PadHead, NoProductOfTheHeadHasOtherRows) {
  for (const bool row_major : {false, true}) {
    const Graph made =
        compiled(build({.columns = 300, .row_major = row_major}, 1).graph, kMultiple);
    int products = 0;
    for (const auto& node : made.nodes()) {
      if (!node->is<MatMul>()) continue;
      ++products;
      for (const Value& factor : node->inputs)
        for (const int64_t size : factor.shape()) EXPECT_NE(size, 300);
    }
    EXPECT_EQ(products, 3);
  }
}

// The graph with NaN in what the head's product makes behind its columns.
Graph with_nan(const Graph& graph, int& heads) {
  Rewrite rewrite(graph);
  std::set<const Node*> masked;
  for (const auto& node : graph.nodes()) {
    if (!node->is<MaskColumns>()) continue;
    const Node* at = node->inputs[0].node;
    while (at->is<Cast>() || at->is<Reshape>()) at = at->inputs[0].node;
    if (at->is<MatMul>()) masked.insert(at);
  }
  for (const auto& node : graph.nodes()) {
    if (!masked.contains(node.get())) {
      rewrite.copy(*node);
      continue;
    }
    const Node& zeros = *node->inputs[1].node;
    Pad op = zeros.op_as<Pad>();
    op.value = std::numeric_limits<double>::quiet_NaN();
    const Value nan = add_node(std::move(op), rewrite.mapped_inputs(zeros));
    Node& head = rewrite.to().add(node->op, {rewrite.mapped(node->inputs[0]), nan}, node->site);
    rewrite.replace(*node, {{&head, 0}});
    ++heads;
  }
  return rewrite.finish();
}

TEST(PadHead, WhatLiesInThePaddingOfTheLogitsIsNeverUsed) {
  const auto ref = make_backend("ref");
  for (const bool tied : {false, true}) {
    const Built built = build({.columns = 257, .tied = tied, .counts = true}, 3);
    const Graph made = compiled(built.graph, kMultiple);
    int heads = 0;
    const Graph poisoned = with_nan(made, heads);
    EXPECT_EQ(heads, 1);
    expect_same_bits(evaluate(poisoned, *ref, built.inputs), evaluate(made, *ref, built.inputs));
  }
}

// A class that is not there has no logit, not even one of the padding.
TEST(PadHead, ALabelInThePaddingIsRefused) {
  const auto ref = make_backend("ref");
  for (const double label : {300.0, 319.0}) {
    const Built built = build({.columns = 300, .wrong_label = label}, 3);
    const Graph made = compiled(built.graph, kMultiple);
    ASSERT_EQ(head_paddings(made).size(), 1u);
    const std::string error = user_error([&] { evaluate(made, *ref, built.inputs); });
    EXPECT_NE(error.find("expected 0 to 299"), std::string::npos) << error;
  }
}

TEST(PadHead, WhereNothingIsPadded) {
  struct Case {
    const char* why;
    Head head;
    DType precision = DType::kBF16;
    bool tf32 = false;
    size_t padded = 0;
  };
  const Case cases[] = {
      {"f32 goes by no tensor cores", {}, DType::kF32},
      {"TF32 does", {}, DType::kF32, true, 1},
      {"few columns", {.columns = 101}},
      {"a whole multiple", {.columns = 320}},
      {"a smoothed loss has a mean over the columns", {.smoothing = 0.1}},
  };
  const auto ref = make_backend("ref");
  for (const Case& each : cases) {
    SCOPED_TRACE(each.why);
    const Built built = build(each.head, 2);
    const Graph made = compiled(built.graph, kMultiple, each.precision, each.tf32);
    EXPECT_EQ(head_paddings(made).size(), each.padded);
    const Graph plain = compiled(built.graph, 1, each.precision, each.tf32);
    expect_same_bits(evaluate(made, *ref, built.inputs), evaluate(plain, *ref, built.inputs));
  }
}

// The loops of such a loss reach over each other's nodes: they were once joined so that they waited
// for each other.
TEST(PadHead, AHeadWithABiasStaysAsItIs) {
  const auto ref = make_backend("ref");
  for (const int64_t columns : {30, 300}) {
    const Built built = build({.columns = columns, .bias = true}, 2);
    const Graph plain = compiled(built.graph, 1);
    EXPECT_TRUE(std::any_of(plain.nodes().begin(), plain.nodes().end(), [](const auto& node) {
      return node->template is<Fused>();
    }));
    const Graph made = compiled(built.graph, kMultiple);
    EXPECT_TRUE(head_paddings(made).empty());
    expect_same_bits(evaluate(made, *ref, built.inputs), evaluate(plain, *ref, built.inputs));
  }
}

TEST(PadHead, ALossInPartsIsPaddedInEachPart) {
  const auto ref = make_backend("ref");
  const Built built = build({.columns = 300, .tied = true}, 4);
  const auto run = [&](int64_t multiple) {
    LazyBackend device({.stores_16_bits = true, .column_multiple = multiple});
    Graph made = built.graph.clone();
    run_pipeline(made, device, {.precision = DType::kBF16, .loss_chunks = 3, .verify_each = true});
    return made;
  };
  const Graph made = run(kMultiple);
  EXPECT_EQ(head_paddings(made).size(), 3u);
  expect_same_bits(evaluate(made, *ref, built.inputs), evaluate(run(1), *ref, built.inputs));
}

}  // namespace
}  // namespace ridge::test
