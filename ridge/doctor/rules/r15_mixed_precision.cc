// R15: a program that computes in 16 bits itself, and gets less of it than it could, or loses
// numbers by it: products that stayed in FP32, gradients of FP16 that nobody scales, and steps that
// are thrown away because scaled gradients overflow.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/cpu_operators.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/matrix_roof.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr std::string_view kRule = "R15";
constexpr std::string_view kHalf = "c10::Half";
constexpr Ladder kLadder{.info = 0.05, .warning = 0.10, .high = 0.30};
// Part of the gain that counts as sure: casts come in, and memory holds some products back.
constexpr double kSure = 0.3;

// Operators of torch's GradScaler, and the names of the ranges that torch draws around a step of an
// optimizer and around the gradient of an operator.
constexpr std::string_view kUnscale = "aten::_amp_foreach_non_finite_check_and_unscale_";
constexpr std::string_view kUpdateScale = "aten::_amp_update_scale_";
constexpr std::string_view kStep = "Optimizer.step#";
constexpr std::string_view kBackward = "autograd::engine::evaluate_function";
// Libraries that scale by themselves.
constexpr std::string_view kOwnScalers[] = {"deepspeed", "apex", "amp_c"};

// A scaler finds its scale by overflows: now and then one is as it should be.
constexpr double kSkips = 0.10;
constexpr size_t kLeastUpdates = 5;

// Rows on host threads whose names begin so, in the order of their starts.
std::vector<size_t> host_rows(const Trace& trace, std::string_view opening) {
  std::vector<size_t> rows;
  ByName fits(trace, [&](std::string_view name) { return name.starts_with(opening); });
  for (size_t row = 0; row < trace.size(); ++row)
    if (!trace.lane_of(row).is_device() && fits(row)) rows.push_back(row);
  return rows;
}

bool scales_by_itself(const Trace& trace) {
  return std::ranges::any_of(trace.names,
                             [](std::string_view name) { return holds_any(name, kOwnScalers); });
}

// ---- products that stayed in FP32 ----

constexpr std::string_view kFix =
    "bring these wide products under autocast, too: those outside of its 'with', in "
    "autocast(enabled=False) or in a function with custom_fwd(cast_inputs=float32) stay in FP32; "
    "or "
    "compute them in TF32, unless they are FP32 on purpose";
constexpr std::string_view kFixOnCpu =
    "bring these products under autocast, too, unless they are FP32 on purpose: those outside of "
    "its "
    "'with', in autocast(enabled=False) or in a function with custom_fwd(cast_inputs=float32) stay "
    "in "
    "FP32";

std::vector<size_t> wide_products(const Trace& trace, const Analysis& analysis) {
  if (analysis.is_cpu_only) return fp32_products(trace);
  std::vector<size_t> rows;
  ByName is_plain(trace, is_plain_fp32_matrix);
  for (const size_t row : analysis.kernels)
    if (is_plain(row)) rows.push_back(row);
  return rows;
}

void judge_wide(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<size_t> wide = wide_products(trace, analysis);
  const double ms = ms_a_step(trace, analysis, wide);
  const double share = share_of(ms, analysis);
  if (share < kLadder.info) {
    output.not_fired.push_back(
        {kRule, fmt::format("products that stayed in FP32 are {:.1f} % of a step", 100 * share)});
    return;
  }
  const double speed = analysis.short_products;
  if (analysis.is_cpu_only && speed <= 1) {
    output.not_fired.push_back({kRule,
                                speed < 0 ? "what products the processor has is not known"
                                          : "the processor has no products of 16-bit numbers"});
    return;
  }
  const double saved =
      analysis.is_cpu_only ? 1 - 1 / speed : saved_by_matrix_units(trace, analysis);
  Finding finding{.rule = kRule, .title = "products in FP32 beside those of 16 bits"};
  charge(finding, analysis, saved * ms, kSure);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.6;
  const std::vector<size_t> longest = longest_of(trace, wide);
  finding.evidence.push_back(
      {.rows = longest,
       .text = fmt::format(
           "{:.1f} such products a step, {:.2f} ms of {:.2f}; the longest is {}",
           static_cast<double>(wide.size()) / static_cast<double>(analysis.steps.windows.size()),
           ms,
           analysis.breakdown.wall,
           short_name(trace.name_text(longest.front())))});
  finding.at = stretches_of(trace, wide);
  report(output,
         trace,
         std::move(finding),
         {.fix = analysis.is_cpu_only ? kFixOnCpu : kFix,
          .semantic_class = SemanticClass::kPrecision});
}

// ---- gradients of FP16 ----

// Products of gradients: within the range of an operator's gradient.
std::vector<size_t> products_of_gradients(const Trace& trace) {
  std::map<uint32_t, std::vector<Interval>> gradients;
  for (const size_t row : host_rows(trace, kBackward))
    gradients[trace.lane[row]].push_back({trace.start_ns[row], trace.end_ns(row)});
  std::map<uint32_t, Intervals> within;
  for (auto& [lane, stretches] : gradients) within[lane] = union_of(std::move(stretches));
  std::vector<size_t> rows;
  for (const size_t row : products_of_type(trace, kHalf)) {
    const auto found = within.find(trace.lane[row]);
    if (found == within.end()) continue;
    const int64_t at = trace.start_ns[row];
    const auto after = std::ranges::upper_bound(found->second, at, {}, &Interval::begin);
    if (after != found->second.begin() && at < std::prev(after)->end) rows.push_back(row);
  }
  return rows;
}

void judge_unscaled(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<size_t> gradients = products_of_gradients(trace);
  if (gradients.empty() || host_rows(trace, kStep).empty()) return;
  if (!host_rows(trace, kUnscale).empty() || scales_by_itself(trace)) return;
  Finding finding{.rule = kRule, .title = "gradients in FP16 without a GradScaler"};
  finding.severity = Severity::kWarning;
  finding.confidence = 0.6;
  finding.evidence.push_back(
      {.rows = longest_of(trace, gradients),
       .text = fmt::format("{:.1f} products of gradients a step in FP16, and none of a scaler's "
                           "operators: gradients below 6e-8 become zero, and those above 65504 "
                           "infinite",
                           static_cast<double>(gradients.size()) /
                               static_cast<double>(analysis.steps.windows.size()))});
  report(
      output,
      trace,
      std::move(finding),
      {.fix = "scale the loss by torch.amp.GradScaler (one made with enabled=False does not), or "
              "compute in bf16, which has the range of FP32",
       .semantic_class = SemanticClass::kPrecision});
}

// ---- steps that are thrown away ----

void judge_skipped(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  std::vector<int64_t> updates;
  const Interval steady{analysis.steps.windows.front().begin, analysis.steps.windows.back().end};
  for (const size_t row : host_rows(trace, kUpdateScale))
    if (trace.start_ns[row] >= steady.begin && trace.start_ns[row] < steady.end)
      updates.push_back(trace.start_ns[row]);
  std::vector<int64_t> steps;
  for (const size_t row : host_rows(trace, kStep)) steps.push_back(trace.start_ns[row]);
  std::ranges::sort(updates);
  std::ranges::sort(steps);
  if (updates.size() <= kLeastUpdates) return;
  std::vector<Interval> skipped;
  for (size_t i = 1; i < updates.size(); ++i) {
    const auto next = std::ranges::upper_bound(steps, updates[i - 1]);
    if (next == steps.end() || *next > updates[i]) skipped.push_back({updates[i - 1], updates[i]});
  }
  const size_t all = updates.size() - 1;
  if (static_cast<double>(skipped.size()) < kSkips * static_cast<double>(all)) return;
  Finding finding{.rule = kRule, .title = "steps are thrown away: scaled gradients overflow"};
  finding.at = union_of(skipped);
  charge(finding,
         analysis,
         1e-6 * static_cast<double>(total_length(finding.at)) /
             static_cast<double>(analysis.steps.windows.size()),
         kSure);
  finding.severity = Severity::kHigh;
  finding.confidence = 0.8;
  finding.evidence.push_back(
      {.rows = {},
       .text = fmt::format("{} of {} updates of the GradScaler's scale came without a step of the "
                           "optimizer; one in thousands is usual",
                           skipped.size(),
                           all)});
  report(
      output,
      trace,
      std::move(finding),
      {.fix = "look for what is not finite (torch.autograd.set_detect_anomaly), compute that part "
              "in FP32, give the scaler a smaller init_scale or a longer growth_interval, or "
              "compute in bf16, which needs no scaler",
       .semantic_class = SemanticClass::kPrecision});
}

}  // namespace

void r15_mixed_precision(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const size_t before = output.findings.size();
  if (!has_short_products(trace)) {
    output.not_fired.push_back({kRule, "no product of 16-bit numbers is recorded"});
    return;
  }
  judge_unscaled(trace, analysis, output);
  judge_skipped(trace, analysis, output);
  judge_wide(trace, analysis, output);
  // A rule fills findings or reasons, and here the other two may have found nothing.
  if (output.findings.size() > before)
    std::erase_if(output.not_fired, [](const NotFired& each) { return each.rule == kRule; });
}

}  // namespace ridge::doctor
