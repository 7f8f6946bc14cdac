// Tests what a kernel's results are measured by, with references that are wrong on purpose.
#include "ridge/run/compare.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/backends.h"
#include "tests/support/case_builder.h"

namespace ridge::test {
namespace {

// Each gradient is the same, so that their mean takes all of it away: what is left are roundings.
TEST(Compare, ResultsThatCancelAreHeldToTheDigitsOfTheirOperands) {
  CaseBuilder b(DType::kF64, 3);
  std::vector<double> x, dy;
  for (int i = 0; i < 25; ++i) x.push_back(0.1 * i - 1.2), dy.push_back(0.37);
  const TensorType channel{DType::kF64, {1}};
  BatchNormGrad op;
  op.eps = 0.01;
  const Value dx = add_node(std::move(op),
                            {b.given({DType::kF64, {5, 5, 1}}, x),
                             b.given(channel, {0.7}),
                             b.given(channel, {0.1}),
                             b.given(channel, {0.0}),
                             b.given(channel, {0.52}),
                             b.given({DType::kF64, {5, 5, 1}}, dy)});
  NamedTensors operands;
  for (const Value& value : dx.node->inputs)
    operands.emplace(fmt::format("{}", operands.size()),
                     b.tensors().at(value.node->op_as<Input>().input_name));
  const auto cpu = make_backend("cpu"), ref = make_backend("ref");
  const Graph lone = lone_node(*dx.node);
  const NamedTensors right = evaluate(lone, *ref, operands);
  ASSERT_LT(std::fabs(right.at("0").at(0)), 1e-15);
  const auto differences_from = [&](double error) {
    NamedTensors want = right;
    Tensor& first = want.at("0");
    for (int64_t i = 0; i < first.elements(); ++i) first.set(i, first.at(i) + error);
    return choice_differences(lone, operands, want, *cpu, *ref);
  };
  const auto with_noise = differences_from(2e-17), with_error = differences_from(1e-12);
  ASSERT_FALSE(with_noise.empty());
  for (const std::string& line : with_noise) EXPECT_EQ(line, "");
  for (const std::string& line : with_error) EXPECT_NE(line, "");
}

}  // namespace
}  // namespace ridge::test
