// Programs that only call modules: the outputs of the calls.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "ridge/tune/pytorch/guard/parts.h"

namespace ridge {
namespace {

using attach::RunRecord;

// Of the spread of the outputs. In f32 a sum of thousands of terms in another order moves by some
// 1e-6, and some tens of layers by ten times that. bf16 rounds by 0.2 % at each layer, and what
// comes out of fifty by seven times that.
constexpr double kReassociation = 1e-4, kPrecision = 0.05;
// The repeat is one sample of its noise.
constexpr double kNoise = 4;
// Of fewer, a projection may be small by chance.
constexpr size_t kLeastCalls = 4;

double total_of(const std::vector<double>& values) {
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

/// Deviation of all outputs from their mean.
double spread_of(const RunRecord& record) {
  const double count = total_of(record.output_counts);
  const double mean = total_of(record.output_sums) / count;
  return std::sqrt(std::max(0.0, total_of(record.output_squares) / count - mean * mean));
}

/// Root mean square of the difference per number: a sum with random signs estimates it, and a
/// common shift shows in the plain sums.
double error_of(const RunRecord& a, const RunRecord& b) {
  double squares = 0, shift = 0, count = 0;
  for (size_t i = 0; i < std::min(a.output_counts.size(), b.output_counts.size()); ++i) {
    const double projection = b.output_projections[i] - a.output_projections[i];
    const double sum = b.output_sums[i] - a.output_sums[i];
    // A call whose own outputs are not finite says nothing.
    if (!std::isfinite(projection) || !std::isfinite(sum)) continue;
    squares += projection * projection;
    shift += sum;
    count += a.output_counts[i];
  }
  return count > 0 ? std::max(std::sqrt(squares / count), std::fabs(shift) / count) : 0;
}

}  // namespace

GuardOutcome judge_outputs(const ForeignBaseline& baseline,
                           const ForeignRuns& candidates,
                           SemanticClass semantic_class) {
  const RunRecord& first = baseline.seeds[0];
  bool are_same = true;
  for (size_t i = 0; i < candidates.size(); ++i) {
    are_same = are_same && candidates[i].outputs_hash == baseline.seeds[i].outputs_hash;
    for (size_t call = 0; call < baseline.seeds[i].output_counts.size(); ++call)
      if (call >= candidates[i].output_counts.size() ||
          candidates[i].output_counts[call] != baseline.seeds[i].output_counts[call])
        return guard_failed(fmt::format("call {} gives other numbers of outputs", call + 1));
  }
  const std::string extent = extent_of(candidates, "calls");
  if (are_same && !first.outputs_hash.empty())
    return guard_passed("outputs of " + extent + ": the same bits");
  const double spread = total_of(first.output_counts) > 0 ? spread_of(first) : 0;
  if (!(spread > 0) || !std::isfinite(spread))
    return guard_open("the outputs have no spread that differences could be measured by");
  if (first.output_counts.size() < kLeastCalls)
    return guard_open(fmt::format(
        "{} calls are too few; {} are needed", first.output_counts.size(), kLeastCalls));
  const bool is_precise = semantic_class == SemanticClass::kReassociation && !first.is_coarse;
  const double allowed = is_precise ? kReassociation : kPrecision;
  const double noise = kNoise * error_of(first, baseline.again) / spread;
  if (noise > kPrecision)
    return guard_open(
        fmt::format("repeated runs of the program differ by {} of the spread of "
                    "their outputs themselves",
                    percent(noise / kNoise)));
  double error = 0;
  for (size_t i = 0; i < candidates.size(); ++i)
    error = std::max(error, error_of(baseline.seeds[i], candidates[i]) / spread);
  const std::string text =
      fmt::format("outputs of {}: a difference of {} of their spread (allowed {})",
                  extent,
                  percent(error),
                  percent(allowed + noise));
  return error <= allowed + noise ? guard_passed(text) : guard_failed(text);
}

}  // namespace ridge
