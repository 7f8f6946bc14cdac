// R13: products of matrices in FP32 on units that multiply one number at a time; on the CPU, where
// it has instructions for products of 16-bit numbers.
#include <fmt/format.h>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/cpu_operators.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/matrix_roof.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr double kLeastShare = 0.20;  // Share of a step that products must take.
constexpr double kSure = 0.4;         // Memory keeps real ones from all of it.

// 0 where the recorder does not say.
int32_t capability(const Trace& trace, int32_t device) {
  for (const Device& each : trace.devices)
    if (each.number == device) return each.major;
  return 0;
}

// Those of compute capability 7 multiply FP16 alone; TF32 and bf16 came with 8.
constexpr int32_t kFirst = 7, kTf32 = 8;

std::string_view fix_for(int32_t major) {
  if (major > 0 && major < kTf32)
    return "compute products in FP16 (torch.autocast, with a GradScaler): the matrix units of this "
           "device take nothing wider";
  return "compute products in TF32 (torch.set_float32_matmul_precision('high')) or bf16 "
         "(torch.autocast), unless they are FP32 on purpose";
}

// Part of the gain that counts as sure on the CPU: casts, and products that memory holds back.
constexpr double kSureOnCpu = 0.2;

void add_reason(RuleOutput& output, std::string reason) {
  output.not_fired.push_back({"R13", std::move(reason)});
}

void judge_processor(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const double speed = analysis.short_products;
  if (speed < 0) return add_reason(output, "what products the processor has is not known");
  if (speed <= 1) return add_reason(output, "the processor has no products of 16-bit numbers");
  const std::vector<size_t> plain = fp32_products(trace);
  const double plain_ms = ms_a_step(trace, analysis, plain);
  const double share = share_of(plain_ms, analysis);
  if (share < kLeastShare)
    return add_reason(output,
                      fmt::format("products in FP32 are {:.1f} % of a step, less than {:.0f} %",
                                  100 * share,
                                  100 * kLeastShare));
  Finding finding{.rule = "R13", .title = "16-bit products idle: products in FP32"};
  charge(finding, analysis, (1 - 1 / speed) * plain_ms, kSureOnCpu);
  finding.confidence = 0.5;  // and a remark: FP32 is what most programs want
  finding.evidence.push_back(
      {.rows = longest_of(trace, plain),
       .text = fmt::format("{:.2f} ms of a step of {:.2f} ms in products of FP32; the processor "
                           "does those of BF16 {:.0f} times as fast",
                           plain_ms,
                           analysis.breakdown.wall,
                           speed)});
  finding.at = stretches_of(trace, plain);
  report(output,
         trace,
         std::move(finding),
         {.fix = "compute products in bf16 (torch.autocast('cpu', torch.bfloat16)), unless they "
                 "are FP32 on purpose",
          .semantic_class = SemanticClass::kPrecision});
}

}  // namespace

void r13_tensor_cores(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  // A program that computes in 16 bits somewhere has chosen, and R15 looks at what it left out.
  if (has_short_products(trace))
    return add_reason(output, "the program computes products in 16 bits itself");
  if (analysis.is_cpu_only) return judge_processor(trace, analysis, output);
  const int32_t major = capability(trace, analysis.device);
  if (major > 0 && major < kFirst) {
    output.not_fired.push_back({"R13", "the device has no matrix units"});
    return;
  }
  std::vector<size_t> plain;
  ByName is_plain(trace, is_plain_fp32_matrix);
  for (size_t row : analysis.kernels)
    if (is_plain(row)) plain.push_back(row);
  const double plain_ms = ms_a_step(trace, analysis, plain);
  if (share_of(plain_ms, analysis) < kLeastShare) {
    output.not_fired.push_back(
        {"R13",
         fmt::format("products in plain FP32 are {:.1f} % of a step, less than {:.0f} %",
                     100 * share_of(plain_ms, analysis),
                     100 * kLeastShare)});
    return;
  }
  Finding finding{.rule = "R13", .title = "matrix units idle: products in plain FP32"};
  charge(finding, analysis, saved_by_matrix_units(trace, analysis) * plain_ms, kSure);
  finding.severity = Severity::kHigh;
  finding.confidence = 0.7;
  const std::vector<size_t> longest = longest_of(trace, plain);
  finding.evidence.push_back(
      {.rows = longest,
       .text = fmt::format("{:.2f} ms of a step of {:.2f} ms in kernels such as {}",
                           plain_ms,
                           analysis.breakdown.wall,
                           short_name(trace.name_text(longest.front())))});
  finding.at = stretches_of(trace, plain);
  report(output,
         trace,
         std::move(finding),
         {.fix = fix_for(major), .semantic_class = SemanticClass::kPrecision});
}

}  // namespace ridge::doctor
