// Schedules, step scalars, optimizer steps and losses against values worked out by hand.
#include "ridge/nn/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ridge/graph/ops/source.h"
#include "ridge/nn/loss.h"
#include "ridge/nn/schedule.h"
#include "ridge/run/backends.h"
#include "ridge/run/evaluate.h"

namespace ridge::test {
namespace {

using nn::OptimizerOptions;
using nn::ScheduleOptions;

struct ScheduleRow {
  ScheduleOptions options;
  int64_t total;
  std::vector<double> factors;  ///< From step 0.
};

// cos(pi/4) = 0.70711, cos(3 pi/4) = -0.70711: a half cosine over four steps.
TEST(Schedule, FollowsTheTable) {
  constexpr auto kConstant = nn::ScheduleKind::kConstant, kCosine = nn::ScheduleKind::kCosine;
  const ScheduleRow rows[] = {
      {{kConstant, 0, 0.1}, 3, {1, 1, 1}},
      {{kConstant, 4, 0.1}, 6, {0.25, 0.5, 0.75, 1, 1, 1}},
      {{kCosine, 0, 0.0}, 5, {1, 0.853553390593, 0.5, 0.146446609407, 0, 0, 0}},
      {{kCosine, 2, 0.2}, 7, {0.5, 1, 1, 0.882842712475, 0.6, 0.317157287525, 0.2, 0.2}},
      {{kCosine, 3, 0.1}, 4, {1.0 / 3.0, 2.0 / 3.0, 1, 1, 0.1}},
      {{kCosine, 5, 0.1}, 2, {0.2, 0.4}},
      {{kCosine, 0, 0.5}, 1, {1, 0.5}},
  };
  for (const ScheduleRow& row : rows)
    for (size_t step = 0; step < row.factors.size(); ++step)
      EXPECT_NEAR(nn::schedule_factor(row.options, static_cast<int64_t>(step), row.total),
                  row.factors[step],
                  1e-12)
          << name_of(row.options.kind) << " warmup " << row.options.warmup << " step " << step;
}

std::string refusal(const auto& options) {
  try {
    nn::check_options(options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Schedule, RefusesBadOptions) {
  EXPECT_EQ(refusal(ScheduleOptions{nn::ScheduleKind::kCosine, -1, 0.1}),
            "schedule: warmup must be at least 0 steps; got -1");
  EXPECT_EQ(refusal(ScheduleOptions{nn::ScheduleKind::kCosine, 0, 1.5}),
            "schedule: final_ratio out of range; got 1.5, expected 0 to 1");
  EXPECT_EQ(refusal(ScheduleOptions{}), "");
}

TEST(Optimizer, RefusesBadOptions) {
  OptimizerOptions options;
  EXPECT_EQ(refusal(options), "");
  options.beta1 = 1.0;
  EXPECT_EQ(refusal(options), "optimizer: beta1 out of range; got 1, expected 0 to below 1");
  options.beta1 = std::nan("");
  EXPECT_NE(refusal(options), "");
  options = {};
  options.lr = HUGE_VAL;
  EXPECT_NE(refusal(options), "");
}

// The results of one step from p = 2, g = 3, all moments m (and v).
NamedTensors one_step(const OptimizerOptions& options, double m, double v, bool decay) {
  Graph graph;
  const TensorType type{DType::kF64, {1}};
  const Value hyper = input(graph, "hyper", {DType::kF64, {nn::kStepScalars}});
  nn::ParameterUpdate update{constant(graph, type, 2.0), constant(graph, type, 3.0), {}, decay};
  const size_t moments = nn::moment_names(options, "p").size();
  if (moments > 0) update.moments.push_back(constant(graph, type, m));
  if (moments > 1) update.moments.push_back(constant(graph, type, v));
  const nn::UpdatedParameter next = nn::update_parameter(options, update, nn::split_hyper(hyper));
  graph.add_output("p", next.parameter);
  for (size_t i = 0; i < moments; ++i)
    graph.add_output(fmt::format("moment{}", i), next.moments[i]);
  const nn::StepScalars scalars = nn::step_scalars(options, {}, 1, 10);
  return evaluate(graph, *make_backend("ref"), {{"hyper", nn::hyper_tensor(scalars, DType::kF64)}});
}

// Second step (t = 2): m = 0.5 * 1 + 0.5 * 3 = 2, v = 0.75 * 4 + 0.25 * 9 = 5.25; corrected by
// 1 - 0.25 and 1 - 0.5625: m^ = 8/3, v^ = 12, so that p = 2 - 0.1 * 0.2 * 2 - 0.1 * (8/3) /
// (sqrt(12) + 0.5).
TEST(Optimizer, AdamwByHand) {
  OptimizerOptions options;
  options.lr = 0.1;
  options.beta1 = 0.5;
  options.beta2 = 0.75;
  options.eps = 0.5;
  options.weight_decay = 0.2;
  const double move = 0.1 * (8.0 / 3.0) / (std::sqrt(12.0) + 0.5);
  const NamedTensors next = one_step(options, 1.0, 4.0, true);
  EXPECT_DOUBLE_EQ(next.at("p").at(0), 1.96 - move);
  EXPECT_DOUBLE_EQ(next.at("moment0").at(0), 2.0);
  EXPECT_DOUBLE_EQ(next.at("moment1").at(0), 5.25);
  EXPECT_DOUBLE_EQ(one_step(options, 1.0, 4.0, false).at("p").at(0), 2.0 - move);
}

// The decay joins the gradient: g = 3 + 0.25 * 2 = 3.5; buffer 0.5 * 1 + 3.5 = 4.
TEST(Optimizer, SgdByHand) {
  OptimizerOptions options;
  options.kind = nn::OptimizerKind::kSgd;
  options.lr = 0.1;
  options.momentum = 0.5;
  options.weight_decay = 0.25;
  EXPECT_DOUBLE_EQ(one_step(options, 1.0, 0.0, true).at("p").at(0), 1.6);
  EXPECT_DOUBLE_EQ(one_step(options, 1.0, 0.0, true).at("moment0").at(0), 4.0);
  EXPECT_DOUBLE_EQ(one_step(options, 1.0, 0.0, false).at("p").at(0), 1.65);
  options.momentum = 0.0;
  EXPECT_EQ(nn::moment_names(options, "p").size(), 0u);
  EXPECT_DOUBLE_EQ(one_step(options, 1.0, 0.0, true).at("p").at(0), 1.65);
}

TEST(Optimizer, NormAndClip) {
  Graph graph;
  const Value a = constant(graph, {DType::kF64, {2}}, 2.0),
              b = constant(graph, {DType::kF64, {}}, -1);
  const Value norm = nn::global_norm({a, b});
  graph.add_output("norm", norm);
  graph.add_output("clipped", nn::clip_coefficient(norm, 1.5));
  graph.add_output("free", nn::clip_coefficient(norm, 4.0));
  const NamedTensors results = evaluate(graph, *make_backend("ref"), {});
  EXPECT_DOUBLE_EQ(results.at("norm").at(0), 3.0);
  EXPECT_DOUBLE_EQ(results.at("clipped").at(0), 1.5 / (3.0 + 1e-6));
  EXPECT_DOUBLE_EQ(results.at("free").at(0), 1.0);
}

NamedTensors evaluate_sums(Graph& graph, const nn::LossSums& sums) {
  graph.add_output("loss", sums.loss);
  graph.add_output("count", sums.count);
  return evaluate(graph, *make_backend("ref"), {});
}

// Rows (0, ln 3) have softmax (1/4, 3/4): losses ln 4 and ln 4/3; the third row does not count.
TEST(Loss, CrossEntropySumsByHand) {
  Graph graph;
  const double ln3 = std::log(3.0);
  const Value logits = constant(graph, {DType::kF64, {3, 2}}, {0.0, ln3, 0.0, ln3, 0.0, ln3});
  const Value labels = constant(graph, {DType::kI16, {3}}, {0, 1, -100});
  graph.add_output("correct", nn::count_correct(logits, labels));
  const NamedTensors sums = evaluate_sums(graph, nn::cross_entropy_sums(logits, labels));
  EXPECT_NEAR(sums.at("loss").at(0), std::log(4.0) + std::log(4.0 / 3.0), 1e-14);
  EXPECT_EQ(sums.at("count").at(0), 2.0);
  EXPECT_EQ(sums.at("correct").at(0), 1.0);
}

TEST(Loss, SquaredErrorSumsByHand) {
  Graph graph;
  const Value predictions = constant(graph, {DType::kBF16, {2, 1}}, {1.0, -2.0});
  const Value targets = constant(graph, {DType::kF64, {2}}, {0.5, 1.0});
  const NamedTensors sums = evaluate_sums(graph, nn::squared_error_sums(predictions, targets));
  EXPECT_EQ(sums.at("loss").type().dtype, DType::kF32);
  EXPECT_EQ(sums.at("loss").at(0), 9.25);
  EXPECT_EQ(sums.at("count").at(0), 2.0);
}

}  // namespace
}  // namespace ridge::test
