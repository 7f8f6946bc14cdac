// R15: products that stayed in FP32 beside those of 16 bits, gradients of FP16 without a scaler,
// and steps that a scaler throws away.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ridge/doctor/examination.h"
#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

constexpr std::string_view kHalf = R"(["c10::Half", "c10::Half"])";
constexpr std::string_view kBfloat = R"(["c10::BFloat16", "c10::BFloat16"])";
constexpr std::string_view kSingle = R"(["float", "float"])";
constexpr std::string_view kUnscale = "aten::_amp_foreach_non_finite_check_and_unscale_";
constexpr std::string_view kUpdate = "aten::_amp_update_scale_";

/// Each step of ten has 10 ms.
struct Program {
  std::string_view types = kHalf;  ///< Types of products that are not wide.
  double short_ms = 4, wide_ms = 0;
  bool has_gradients = true, has_scaler = true, has_optimizer = true;
  int skips_every = 0;  ///< One of so many steps is thrown away; 0: none.
};

constexpr int kSteps = 10;

Trace trace_of(const Program& program) {
  MadeTrace made;
  const auto product = [&](std::string_view types, double us, double length) {
    const size_t row = made.op("aten::mm", {us, length});
    TraceBuilder& builder = made.builder();
    builder.set(
        row,
        Details{.shapes = builder.text("[[64, 256], [256, 256]]"), .types = builder.text(types)});
  };
  for (int step = 0; step < kSteps; ++step) {
    const double at = 10'000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 10'000});
    product(program.types, at + 100, 500 * program.short_ms);
    if (program.has_gradients)
      made.op("autograd::engine::evaluate_function: MmBackward0",
              {at + 4000, 500 * program.short_ms + 100});
    product(program.types, at + 4050, 500 * program.short_ms);
    if (program.wide_ms > 0) product(kSingle, at + 6200, 1000 * program.wide_ms);
    const bool is_skipped = program.skips_every > 0 && step % program.skips_every == 0;
    if (program.has_scaler) made.op(kUnscale, {at + 9300, 100});
    if (program.has_optimizer && !is_skipped)
      made.range("Optimizer.step#SGD.step", {at + 9450, 200});
    if (program.has_scaler) made.op(kUpdate, {at + 9700, 100});
  }
  return made.done();
}

RuleOutput judged(const Program& program, double short_products = 2) {
  const Trace trace = trace_of(program);
  Analysis analysis = analyse(trace);
  EXPECT_TRUE(analysis.is_cpu_only);
  analysis.short_products = short_products;
  RuleOutput output;
  r15_mixed_precision(trace, analysis, output);
  EXPECT_GE(output.findings.size() + output.not_fired.size(), 1u);
  for (const Finding& finding : output.findings) {
    EXPECT_EQ(finding.rule, "R15");
    EXPECT_FALSE(finding.evidence.empty());
    EXPECT_FALSE(finding.fix.empty());
    EXPECT_LE(finding.predicted.high, finding.ceiling);
  }
  return output;
}

void expect_nothing(const Program& program) {
  const RuleOutput output = judged(program);
  EXPECT_TRUE(output.findings.empty()) << output.findings.front().title;
}

Finding only_finding(const Program& program) {
  const RuleOutput output = judged(program);
  EXPECT_EQ(output.findings.size(), 1u);
  EXPECT_TRUE(output.not_fired.empty());
  return output.findings.empty() ? Finding{} : output.findings.front();
}

TEST(R15, AProgramAsItShouldBe) {
  expect_nothing({});
  expect_nothing({.types = kBfloat, .has_scaler = false});
  expect_nothing({.wide_ms = 0.4});
}

TEST(R15, AProgramWithoutMixedPrecisionIsR13s) {
  const RuleOutput output = judged({.types = kSingle, .has_scaler = false});
  ASSERT_EQ(output.not_fired.size(), 1u);
  EXPECT_EQ(output.not_fired[0].reason, "no product of 16-bit numbers is recorded");
  const Trace mixed = trace_of({.wide_ms = 3});
  Analysis analysis = analyse(mixed);
  analysis.short_products = 2;
  RuleOutput other;
  r13_tensor_cores(mixed, analysis, other);
  EXPECT_TRUE(other.findings.empty());
  EXPECT_EQ(other.not_fired.at(0).reason, "the program computes products in 16 bits itself");
}

TEST(R15, ProductsThatStayedInFp32) {
  const Finding finding = only_finding({.wide_ms = 3});
  EXPECT_NEAR(finding.cost_ms, 1.5, 0.01);  // half of three
  EXPECT_EQ(finding.severity, Severity::kWarning);
  EXPECT_EQ(finding.semantic_class, SemanticClass::kPrecision);
  EXPECT_TRUE(is_worth_fixing(finding));
  EXPECT_NE(finding.evidence[0].text.find("1.0 such products a step, 3.00 ms of 10.00"),
            std::string::npos)
      << finding.evidence[0].text;
  EXPECT_NEAR(judged({.wide_ms = 3}, 8).findings.at(0).cost_ms, 3 * 7.0 / 8, 0.01);
  EXPECT_NE(judged({.wide_ms = 3}, 1).not_fired.at(0).reason.find("has no products"),
            std::string::npos);
  EXPECT_NE(judged({.wide_ms = 3}, -1).not_fired.at(0).reason.find("not known"), std::string::npos);
}

TEST(R15, GradientsOfFp16WithoutAScaler) {
  const Finding finding = only_finding({.has_scaler = false});
  EXPECT_EQ(finding.title, "gradients in FP16 without a GradScaler");
  EXPECT_EQ(finding.cost_ms, 0);
  EXPECT_TRUE(is_worth_fixing(finding)) << "it is about numbers, not about time";
  // Frozen parts and inference need none.
  expect_nothing({.has_gradients = false, .has_scaler = false});
  expect_nothing({.has_scaler = false, .has_optimizer = false});
  // A library that scales by itself.
  MadeTrace made;
  Trace trace = trace_of({.has_scaler = false});
  trace.names.emplace_back("DeepSpeedFP16_Optimizer.step");
  RuleOutput output;
  r15_mixed_precision(trace, analyse(trace), output);
  EXPECT_TRUE(output.findings.empty());
}

TEST(R15, StepsThatAreThrownAway) {
  const Finding half = only_finding({.skips_every = 2});
  EXPECT_EQ(half.severity, Severity::kHigh);
  EXPECT_NE(half.evidence[0].text.find(" of 9 updates of the GradScaler's scale"),
            std::string::npos)
      << half.evidence[0].text;
  // Four of nine intervals of 10 ms over ten steps.
  EXPECT_NEAR(half.cost_ms, 4.0, 0.01);
  const Finding all = only_finding({.skips_every = 1});
  EXPECT_NEAR(all.cost_ms, 9.0, 0.01);
  EXPECT_GT(all.ceiling, 5);
  expect_nothing({.skips_every = 20});
}

TEST(R15, SeveralAreToldOfOneProgram) {
  const RuleOutput output = judged({.wide_ms = 2, .skips_every = 2});
  EXPECT_EQ(output.findings.size(), 2u);
}

/// On a device: kernels tell of FP32, operators on the host of 16 bits.
TEST(R15, KernelsOfADevice) {
  MadeTrace made;
  for (int step = 0; step < kSteps; ++step) {
    const double at = 1000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 1000});
    const size_t row = made.op("aten::mm", {at + 1, 20});
    made.builder().set(row, Details{.types = made.builder().text(kBfloat)});
    made.kernel("ampere_bf16_s16816gemm_bf16_128x64", at + 5, {at + 20, 300});
    made.kernel("ampere_sgemm_128x64_tn", at + 30, {at + 330, 400});
  }
  const Trace trace = made.done();
  RuleOutput output;
  r15_mixed_precision(trace, analyse(trace), output);
  ASSERT_EQ(output.findings.size(), 1u);
  EXPECT_NEAR(output.findings[0].cost_ms, 0.4 * 7 / 8, 0.01);
  EXPECT_EQ(output.findings[0].severity, Severity::kHigh);
}

}  // namespace
}  // namespace ridge::doctor
