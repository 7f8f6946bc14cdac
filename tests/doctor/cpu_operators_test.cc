// R13 and R16 of programs on the CPU: products in FP32, and convolutions of images plane by plane.
#include "ridge/doctor/rules/cpu_operators.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "ridge/doctor/examination.h"
#include "ridge/doctor/rules/rules.h"
#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

struct Operand {
  std::string shapes = "[[64, 256], [256, 256]]", types = "[\"float\", \"float\"]",
              strides = "[[256, 1], [256, 1]]";
};

/// Eight steps of 10 ms, each with the operator for so many of them.
Trace steps_with(std::string_view name, double ms, const Operand& operand) {
  MadeTrace made;
  for (int step = 0; step < 8; ++step) {
    const double at = 10'000.0 * step;
    made.range(fmt::format("ProfilerStep#{}", step), {at, 10'000});
    const size_t row = made.op(name, {at + 100, 1000 * ms});
    TraceBuilder& builder = made.builder();
    builder.set(row,
                Details{.shapes = builder.text(operand.shapes),
                        .types = builder.text(operand.types),
                        .strides = builder.text(operand.strides)});
    made.op("aten::relu", {at + 200 + 1000 * ms, 500});
  }
  return made.done();
}

RuleOutput judged(void (*rule)(const Trace&, const Analysis&, RuleOutput&),
                  const Trace& trace,
                  double short_products = 2) {
  Analysis analysis = analyse(trace);
  EXPECT_TRUE(analysis.is_cpu_only);
  analysis.short_products = short_products;
  RuleOutput output;
  rule(trace, analysis, output);
  EXPECT_EQ(output.findings.size() + output.not_fired.size(), 1u);
  return output;
}

TEST(R13OnCpu, ProductsInFp32AreARemarkWhereTheProcessorHasShorterOnes) {
  const Trace trace = steps_with("aten::addmm", 6, {});
  const RuleOutput output = judged(r13_tensor_cores, trace);
  ASSERT_EQ(output.findings.size(), 1u);
  const Finding& finding = output.findings[0];
  EXPECT_EQ(finding.severity, Severity::kInfo);
  EXPECT_NEAR(finding.cost_ms, 3, 0.01);  // half of six
  EXPECT_EQ(finding.semantic_class, SemanticClass::kPrecision);
  EXPECT_LE(finding.predicted.high, finding.ceiling);
  EXPECT_FALSE(is_worth_fixing(finding));
  // Tiles save seven eighths.
  EXPECT_NEAR(judged(r13_tensor_cores, trace, 8).findings.at(0).cost_ms, 5.25, 0.01);
}

TEST(R13OnCpu, IsSilentWithoutThem) {
  const Trace trace = steps_with("aten::addmm", 6, {});
  EXPECT_NE(judged(r13_tensor_cores, trace, 1).not_fired.at(0).reason.find("has no products"),
            std::string::npos);
  EXPECT_NE(judged(r13_tensor_cores, trace, -1).not_fired.at(0).reason.find("not known"),
            std::string::npos);
}

TEST(R13OnCpu, OtherTypesAndOtherOperatorsAreNone) {
  for (const auto& [name, types] : {std::pair("aten::addmm", "[\"c10::BFloat16\"]"),
                                    std::pair("aten::addmm", "[\"double\", \"double\"]"),
                                    std::pair("aten::addmm", ""),
                                    std::pair("aten::linear", "[\"float\"]"),
                                    std::pair("aten::add", "[\"float\"]")})
    EXPECT_TRUE(judged(r13_tensor_cores, steps_with(name, 6, {.types = types})).findings.empty())
        << name << types;
  EXPECT_TRUE(judged(r13_tensor_cores, steps_with("aten::mm", 1.9, {})).findings.empty());
  EXPECT_FALSE(judged(r13_tensor_cores, steps_with("aten::mm", 2.1, {})).findings.empty());
}

TEST(R16OnCpu, ConvolutionsOfImagesPlaneByPlaneAreARemark) {
  const Operand planar{.shapes = "[[16, 3, 64, 64], [16, 3, 3, 3]]",
                       .strides = "[[12288, 4096, 64, 1], [27, 9, 3, 1]]"};
  const RuleOutput output = judged(r16_layout_copies, steps_with("aten::convolution", 6, planar));
  ASSERT_EQ(output.findings.size(), 1u);
  EXPECT_EQ(output.findings[0].severity, Severity::kInfo);
  EXPECT_NEAR(output.findings[0].cost_ms, 3, 0.01);
  EXPECT_EQ(output.findings[0].semantic_class, SemanticClass::kReassociation);
  EXPECT_TRUE(
      judged(r16_layout_copies, steps_with("aten::convolution", 1.9, planar)).findings.empty());
}

TEST(R16OnCpu, OtherLayoutsAreNone) {
  const auto fires = [](const std::string& shapes, const std::string& strides) {
    const Trace trace = steps_with("aten::convolution", 6, {.shapes = shapes, .strides = strides});
    return !judged(r16_layout_copies, trace).findings.empty();
  };
  EXPECT_FALSE(fires("[[16, 3, 64, 64]]", "[[12288, 1, 192, 3]]")) << "pixel by pixel";
  EXPECT_FALSE(fires("[[16, 1, 64, 64]]", "[[4096, 4096, 64, 1]]")) << "of one plane";
  EXPECT_FALSE(fires("[[16, 64, 1, 1]]", "[[64, 1, 1, 1]]")) << "of one pixel";
  EXPECT_FALSE(fires("[[16, 64, 100]]", "[[6400, 100, 1]]")) << "in one dimension";
  EXPECT_FALSE(fires("[[16, 3, 64, 64]]", "[[12288, x"));
  EXPECT_TRUE(fires("[[16, 3, 64, 64]]", "[[12288, 4096, 64, 1]]"));
  const RuleOutput output = judged(
      r16_layout_copies, steps_with("aten::convolution", 6, {.shapes = "[[1]]", .strides = ""}));
  EXPECT_NE(output.not_fired.at(0).reason.find("not recorded"), std::string::npos);
}

}  // namespace
}  // namespace ridge::doctor
