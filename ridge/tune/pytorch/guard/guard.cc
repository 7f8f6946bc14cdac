#include "ridge/tune/pytorch/guard/guard.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/tune/pytorch/guard/parts.h"

namespace ridge {
namespace {

using attach::RunRecord;

// The norms' sums are ours, made in f64 in an order that may follow the number of threads.
constexpr double kSameNorm = 1e-12;

bool same_number(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

bool same_norm(double a, double b) {
  return same_number(a, b) || std::fabs(a - b) <= kSameNorm * std::fabs(a);
}

/// The first step at which they are not the same; -1: there is none.
int64_t first_difference(const std::vector<double>& a,
                         const std::vector<double>& b,
                         bool (*is_same)(double, double)) {
  const auto shorter = std::min(a.size(), b.size());
  for (size_t i = 0; i < shorter; ++i)
    if (!is_same(a[i], b[i])) return static_cast<int64_t>(i);
  return a.size() == b.size() ? -1 : static_cast<int64_t>(shorter);
}

/// What of two runs has other bits; empty: nothing.
std::string difference_of(const RunRecord& a, const RunRecord& b) {
  if (a.source != b.source || a.steps != b.steps) return "the number of steps";
  if (const int64_t step = first_difference(a.losses, b.losses, same_number); step >= 0)
    return fmt::format("the loss of step {}", step + 1);
  if (const int64_t step = first_difference(a.gradient_norms, b.gradient_norms, same_norm);
      step >= 0)
    return fmt::format("the gradients of step {}", step + 1);
  if (a.parameters_hash != b.parameters_hash) return "the parameters behind the last step";
  if (a.outputs_hash != b.outputs_hash) return "the outputs";
  return "";
}

bool has_bits(const RunRecord& record) {
  return !record.parameters_hash.empty() || !record.outputs_hash.empty();
}

GuardOutcome judge_bits(const ForeignBaseline& baseline, const ForeignRuns& candidates) {
  for (size_t i = 0; i < candidates.size(); ++i)
    if (const std::string other = difference_of(baseline.seeds[i], candidates[i]); !other.empty())
      return guard_failed(
          fmt::format("not the same bits: {} of {} differ{}",
                      other,
                      candidates.size() > 1 ? fmt::format("run {}", i + 1) : "the run",
                      other.ends_with('s') || other.ends_with("step") ? "" : "s"));
  if (baseline.seeds[0].source == "module")
    return guard_passed("the same bits: outputs of " + extent_of(candidates, "calls"));
  return guard_passed("the same bits: losses and gradient norms of " +
                      extent_of(candidates, "steps") + ", and all parameters behind them");
}

/// The first step at which only the candidate is not finite; -1: there is none.
int64_t first_broken(const std::vector<double>& baseline, const std::vector<double>& candidate) {
  for (size_t i = 0; i < std::min(baseline.size(), candidate.size()); ++i)
    if (std::isfinite(baseline[i]) && !std::isfinite(candidate[i])) return static_cast<int64_t>(i);
  return -1;
}

/// What no class allows; empty: nothing of it.
std::string fault_of(const RunRecord& baseline, const RunRecord& candidate) {
  if (candidate.source != baseline.source)
    return candidate.source.empty()
               ? std::string("no step was seen any more")
               : fmt::format("its steps are those of {} and no more of {}",
                             candidate.source == "module" ? "a module" : "an optimizer",
                             baseline.source == "module" ? "a module" : "an optimizer");
  if (candidate.steps < baseline.steps)
    return fmt::format("the run ended after {} of {} steps", candidate.steps, baseline.steps);
  if (!baseline.losses.empty() && candidate.losses.empty()) return "there is no loss any more";
  if (!baseline.gradient_norms.empty() && candidate.gradient_norms.empty())
    return "there are no gradients any more";
  if (const int64_t step = first_broken(baseline.losses, candidate.losses); step >= 0)
    return fmt::format("the loss of step {} is not finite", step + 1);
  if (const int64_t step = first_broken(baseline.gradient_norms, candidate.gradient_norms);
      step >= 0)
    return fmt::format("the gradient norm of step {} is not finite", step + 1);
  if (const int64_t call = first_broken(baseline.output_squares, candidate.output_squares);
      call >= 0)
    return fmt::format("the outputs of call {} are not finite", call + 1);
  return "";
}

/// What the baseline lacks; empty: nothing.
std::string missing_in(const ForeignBaseline& baseline) {
  const RunRecord& first = baseline.seeds[0];
  if (first.steps == 0 || first.source.empty())
    return "no step of the program was recorded" +
           (first.trouble.empty() ? "" : ": " + first.trouble.front());
  for (const RunRecord& run : baseline.seeds)
    if (run.source != first.source) return "the steps of the program are not found the same way";
  return "";
}

}  // namespace

std::string percent(double share) {
  const double value = 100 * share;
  if (value < 1e-3) return value == 0 ? "0 %" : "below 0.001 %";
  return value < 10 ? fmt::format("{:.2g} %", value) : fmt::format("{:.0f} %", value);
}

std::string extent_of(const ForeignRuns& candidates, std::string_view steps) {
  const std::string extent = fmt::format("{} {}", candidates[0].steps, steps);
  return candidates.size() == 1 ? extent : fmt::format("{} x {} seeds", extent, candidates.size());
}

bool ForeignBaseline::is_repeatable() const {
  return !seeds.empty() && has_bits(seeds[0]) && difference_of(seeds[0], again).empty();
}

RunRecord by_samples(RunRecord record, int64_t work) {
  const auto repeated = [work](const std::vector<double>& values) {
    std::vector<double> all;
    for (const double value : values) all.insert(all.end(), static_cast<size_t>(work), value);
    return all;
  };
  if (work <= 1) return record;
  record.steps *= work;
  record.losses = repeated(record.losses);
  record.gradient_norms = repeated(record.gradient_norms);
  return record;
}

GuardOutcome judge_runs(const ForeignBaseline& baseline,
                        const std::vector<RunRecord>& candidates,
                        SemanticClass semantic_class) {
  check_internal(!candidates.empty() && candidates.size() <= baseline.seeds.size(),
                 "[judge_runs] class {}, {} runs for {} seeds",
                 static_cast<int>(semantic_class),
                 candidates.size(),
                 baseline.seeds.size());
  if (const std::string missing = missing_in(baseline); !missing.empty())
    return guard_open(missing);
  for (size_t i = 0; i < candidates.size(); ++i)
    if (const std::string fault = fault_of(baseline.seeds[i], candidates[i]); !fault.empty())
      return guard_failed(fault);
  if (semantic_class == SemanticClass::kTrajectory && baseline.seeds[0].source == "module")
    return guard_open("outputs of other samples are no measure");
  const bool is_exact = semantic_class == SemanticClass::kBitIdentical;
  if (is_exact && baseline.is_repeatable()) return judge_bits(baseline, candidates);
  const SemanticClass judged = is_exact ? SemanticClass::kReassociation : semantic_class;
  GuardOutcome answer = baseline.seeds[0].source == "module"
                            ? judge_outputs(baseline, candidates, judged)
                            : judge_losses(baseline, candidates, judged);
  if (is_exact)
    answer.text += "; bits could not be compared, for the program's own differ from run to run";
  return answer;
}

}  // namespace ridge
