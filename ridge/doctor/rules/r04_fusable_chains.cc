// R04: runs of small kernels, each of which reads what the one before it wrote.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/kernel_kinds.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.05, .warning = 0.05, .high = 0.20};
constexpr size_t kLeastLength = 3;  // One after a product is its epilogue, and often stays so.
constexpr int64_t kShortNs = 10'000;
// Share that fusing surely saves of a chain's time beyond its longest kernel: chains whose data
// stay in the cache gain less.
constexpr double kSure = 0.5;
constexpr std::string_view kFix =
    "let a compiler fuse them (torch.compile), or use operators that do it in one pass; what is "
    "read and written once then need not go through memory between them";

using Chain = std::vector<size_t>;

// Element by element the arithmetic is never what it takes; a norm has to be short besides.
bool can_be_fused(KernelKind kind, int64_t duration_ns) {
  switch (kind) {
    case KernelKind::kElementwise:
    case KernelKind::kCast:
      return true;
    case KernelKind::kNorm:
      return duration_ns < kShortNs;
    default:
      return false;
  }
}

// Runs on one stream with no other work of it in between. Those of the optimizer are R21's.
std::vector<Chain> chains_of(const Trace& trace, const Analysis& analysis) {
  const std::vector<size_t>& kernels = analysis.kernels;
  const std::vector<size_t> updates = optimizer_kernels(trace, analysis, kernels);
  std::vector<char> counts(trace.size(), 0);
  ByName kind_of(trace, kind_of_kernel);
  for (size_t row : kernels) counts[row] = can_be_fused(kind_of(row), trace.duration_ns[row]);
  for (size_t row : updates) counts[row] = 0;
  std::map<uint32_t, Chain> open;
  std::vector<Chain> chains;
  const auto close = [&chains](Chain& chain) {
    if (chain.size() >= kLeastLength) chains.push_back(chain);
    chain.clear();
  };
  for (size_t row = 0; row < trace.size(); ++row) {
    if (!is_device_work(trace.kind[row]) || trace.lane_of(row).device != analysis.device) continue;
    Chain& chain = open[trace.lane[row]];
    if (counts[row])
      chain.push_back(row);
    else
      close(chain);
  }
  for (auto& [lane, chain] : open) close(chain);
  return chains;
}

}  // namespace

void r04_fusable_chains(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  std::vector<Chain> chains = chains_of(trace, analysis);
  // `beyond` has each chain's kernels but the longest: fused, the chain takes that one's time.
  std::vector<size_t> all, beyond;
  const Chain* worst = nullptr;
  for (const Chain& chain : chains) {
    all.insert(all.end(), chain.begin(), chain.end());
    const size_t longest = longest_of(trace, chain, 1).front();
    std::copy_if(chain.begin(), chain.end(), std::back_inserter(beyond), [longest](size_t row) {
      return row != longest;
    });
    if (worst == nullptr || chain.size() > worst->size()) worst = &chain;
  }
  const double chained_ms = ms_a_step(trace, analysis, all);
  if (share_of(chained_ms, analysis) < kLadder.info) {
    output.not_fired.push_back(
        {"R04",
         fmt::format("{:.1f} % of a step is chains of {} or more kernels that could be one",
                     100 * share_of(chained_ms, analysis),
                     kLeastLength)});
    return;
  }
  Finding finding{.rule = "R04", .title = "chains of kernels that could be one each"};
  charge(finding, analysis, ms_a_step(trace, analysis, beyond), kSure);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.7;
  const double steps = static_cast<double>(analysis.steps.windows.size());
  finding.evidence.push_back(
      {.rows = {worst->begin(), worst->begin() + std::min<std::ptrdiff_t>(5, std::ssize(*worst))},
       .text = fmt::format("{:.0f} chains of {:.1f} kernels a step, {:.2f} ms of {:.2f}; the "
                           "longest has {}, from {} on",
                           static_cast<double>(chains.size()) / steps,
                           static_cast<double>(all.size()) / static_cast<double>(chains.size()),
                           chained_ms,
                           analysis.breakdown.wall,
                           worst->size(),
                           short_name(trace.name_text(worst->front())))});
  finding.at = stretches_of(trace, beyond);
  report(output,
         trace,
         std::move(finding),
         {.fix = kFix, .semantic_class = SemanticClass::kReassociation});
}

}  // namespace ridge::doctor
