// R16: kernels that bring the same values into another order, place or type; on the CPU,
// convolutions of images that lie plane by plane.
#include <fmt/format.h>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/cpu_operators.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.05, .warning = 0.05, .high = 0.20};
// Shorter kernels are bound by their latency, not by memory.
constexpr int64_t kShortNs = 10'000;
constexpr double kSure = 0.4;  // Some of them are needed, and some find data in the cache.
constexpr std::string_view kFix =
    "keep one layout and one type through the model (channels_last for convolutions, weights cast "
    "once), and let products read transposed operands as they lie";

bool only_moves(std::string_view name) {
  const KernelKind kind = kind_of_kernel(name);
  return kind == KernelKind::kLayout || kind == KernelKind::kCast;
}

// On the CPU: the share of a step from which on convolutions are worth a remark, and the part of
// their time that another layout gave back at most in the programs of bench/README.md.
constexpr double kLeastConvolutions = 0.20, kMostBack = 0.5;
constexpr double kSureOnCpu = 0;  // Some convolutions are as fast in either layout.

void judge_images(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  const std::vector<size_t> planar = planar_convolutions(trace);
  const double ms = ms_a_step(trace, analysis, planar);
  const double share = share_of(ms, analysis);
  if (share < kLeastConvolutions) {
    output.not_fired.push_back(
        {"R16",
         has_strides(trace)
             ? fmt::format("convolutions of images plane by plane (NCHW) are {:.1f} % of a step",
                           100 * share)
             : "how images lie is not recorded"});
    return;
  }
  Finding finding{.rule = "R16", .title = "convolutions of images that lie plane by plane (NCHW)"};
  charge(finding, analysis, kMostBack * ms, kSureOnCpu);
  finding.confidence = 0.5;
  finding.evidence.push_back(
      {.rows = longest_of(trace, planar),
       .text = fmt::format("{:.2f} ms of a step of {:.2f} ms; the kernels of the CPU take images "
                           "pixel by pixel (NHWC), and bring others into that order first",
                           ms,
                           analysis.breakdown.wall)});
  finding.at = stretches_of(trace, planar);
  report(output,
         trace,
         std::move(finding),
         {.fix = "let model and images lie pixel by pixel: "
                 "model.to(memory_format=torch.channels_last), and each batch of images too",
          .semantic_class = SemanticClass::kReassociation});
}

}  // namespace

void r16_layout_copies(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  if (analysis.is_cpu_only) return judge_images(trace, analysis, output);
  std::vector<size_t> rows;
  ByName moves(trace, only_moves);
  for (size_t row : analysis.kernels)
    if (trace.duration_ns[row] >= kShortNs && moves(row)) rows.push_back(row);
  const double cost = ms_a_step(trace, analysis, rows);
  if (share_of(cost, analysis) < kLadder.info) {
    output.not_fired.push_back(
        {"R16",
         fmt::format("{:.1f} % of a step is transposes, copies and casts of {} us or more",
                     100 * share_of(cost, analysis),
                     kShortNs / 1000)});
    return;
  }
  Finding finding{.rule = "R16", .title = "transposes, copies and casts move what is there"};
  charge(finding, analysis, cost, kSure);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.7;
  const std::vector<size_t> longest = longest_of(trace, rows);
  finding.evidence.push_back(
      {.rows = longest,
       .text = fmt::format(
           "{:.1f} such kernels a step, {:.2f} ms of {:.2f}; the longest is {}",
           static_cast<double>(rows.size()) / static_cast<double>(analysis.steps.windows.size()),
           cost,
           analysis.breakdown.wall,
           short_name(trace.name_text(longest.front())))});
  finding.at = stretches_of(trace, rows);
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
