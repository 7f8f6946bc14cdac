// R24: one rank is late at the collectives, and all others wait for it.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "ridge/base/shell_word.h"
#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/rules/proof.h"
#include "ridge/doctor/rules/rules.h"
#include "ridge/doctor/rules/straggler.h"
#include "ridge/doctor/trace/name_words.h"

namespace ridge::doctor {
namespace {

constexpr Ladder kLadder{.info = 0.05, .warning = 0.05, .high = 0.15};
constexpr double kMostlyLast = 0.5;
constexpr size_t kFewCollectives = 8;

// Rows of collectives of each steady step. What only two ranks do is no collective: in a pipeline
// they wait for each other by design.
using Collectives = std::vector<std::vector<size_t>>;

Collectives collectives_of(const RankView& rank) {
  const Trace& trace = *rank.trace;
  const std::vector<Interval>& steps = rank.analysis->steps.windows;
  Collectives collectives(steps.size());
  size_t step = 0;
  ByName is_of_all(trace, [](std::string_view name) {
    return is_communication(name) && !holds(name, "sendrecv") && !holds(name, "send_recv");
  });
  for (size_t row = 0; row < trace.size(); ++row) {  // by start
    while (step < steps.size() && steps[step].end <= trace.start_ns[row]) ++step;
    if (step == steps.size()) break;
    if (trace.kind[row] != EventKind::kKernel || trace.start_ns[row] < steps[step].begin) continue;
    if (trace.lane_of(row).device != rank.device) continue;
    if (is_of_all(row)) collectives[step].push_back(row);
  }
  return collectives;
}

struct Waiting {
  std::vector<double> waited_ms;  // by rank, over all that was compared
  std::vector<size_t> times_last;
  std::vector<Interval> at;  // where the first rank waited
  size_t collectives = 0, steps = 0, unlike = 0;
  size_t longest_row = 0;  // of the first rank
  int64_t longest_ns = -1;
};

// The same collective on all ranks: who waited least came last.
void compare(std::span<const RankView> ranks, const std::vector<size_t>& rows, Waiting& waiting) {
  const auto duration = [&](size_t rank) { return ranks[rank].trace->duration_ns[rows[rank]]; };
  size_t last = 0;
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (duration(rank) < duration(last)) last = rank;
  ++waiting.times_last[last];
  ++waiting.collectives;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    waiting.waited_ms[rank] += static_cast<double>(duration(rank) - duration(last)) / 1e6;
  const int64_t waited = duration(0) - duration(last), start = ranks[0].trace->start_ns[rows[0]];
  if (waited > 0) waiting.at.push_back({start, start + waited});
  if (waited > waiting.longest_ns) waiting.longest_ns = waited, waiting.longest_row = rows[0];
}

Waiting waiting_of(std::span<const RankView> ranks) {
  std::vector<Collectives> all;
  for (const RankView& rank : ranks) all.push_back(collectives_of(rank));
  size_t steps = all.front().size();
  for (const Collectives& each : all) steps = std::min(steps, each.size());
  Waiting waiting{.waited_ms = std::vector<double>(ranks.size()),
                  .times_last = std::vector<size_t>(ranks.size()),
                  .at = {}};
  for (size_t step = 0; step < steps; ++step) {
    const size_t count = all.front()[step].size();
    const bool alike = std::all_of(all.begin(), all.end(), [&](const Collectives& each) {
      return each[step].size() == count;
    });
    if (!alike) {
      ++waiting.unlike;
      continue;
    }
    ++waiting.steps;
    std::vector<size_t> rows(ranks.size());
    for (size_t i = 0; i < count; ++i) {
      for (size_t rank = 0; rank < ranks.size(); ++rank) rows[rank] = all[rank][step][i];
      compare(ranks, rows, waiting);
    }
  }
  return waiting;
}

std::string reason_against(const Waiting& waiting) {
  if (waiting.unlike > waiting.steps)
    return "ranks differ in how many collectives a step has: they have different roles";
  if (waiting.collectives < kFewCollectives)
    return fmt::format("{} collectives are too few to compare ranks by", waiting.collectives);
  return {};
}

Finding finding_of(std::span<const RankView> ranks, const Waiting& waiting, size_t last) {
  const Analysis& analysis = *ranks[0].analysis;
  double others_ms = 0;
  for (size_t rank = 0; rank < ranks.size(); ++rank)
    if (rank != last) others_ms += waiting.waited_ms[rank];
  others_ms /= static_cast<double>((ranks.size() - 1) * waiting.steps);
  Finding finding{.rule = "R24", .title = fmt::format("all wait for {}", ranks[last].name)};
  charge(finding, analysis, others_ms);
  finding.severity = severity_of(finding.share, kLadder);
  finding.confidence = 0.8;
  finding.evidence.push_back(
      {.rows = {waiting.longest_row},
       .text = fmt::format("{} is the last at {} of {} collectives; the others wait {:.2f} ms a "
                           "step for it",
                           ranks[last].name,
                           waiting.times_last[last],
                           waiting.collectives,
                           others_ms)});
  finding.at = union_of(waiting.at);
  finding.fix = fmt::format(
      "look at {} alone: a trace of it says what it does instead; compare its clocks, its "
      "processors, and its share of the data with another rank's",
      ranks[last].name);
  finding.command = ranks[last].trace == ranks[0].trace
                        ? proof_of(*ranks[last].trace)
                        : "ridge doctor " + shell_word(ranks[last].trace->source);
  return finding;
}

struct Verdict {
  std::optional<Finding> finding;
  size_t last = 0;
  std::string reason;  // why there is no finding
};

Verdict verdict_of(std::span<const RankView> ranks) {
  Verdict verdict;
  if (ranks.size() < 2) {
    verdict.reason = "one rank alone: give the traces of several ranks";
    return verdict;
  }
  const Waiting waiting = waiting_of(ranks);
  verdict.reason = reason_against(waiting);
  if (!verdict.reason.empty()) return verdict;
  const auto most = std::max_element(waiting.times_last.begin(), waiting.times_last.end());
  verdict.last = static_cast<size_t>(most - waiting.times_last.begin());
  const double share = static_cast<double>(*most) / static_cast<double>(waiting.collectives);
  Finding finding = finding_of(ranks, waiting, verdict.last);
  if (share < kMostlyLast)
    verdict.reason = fmt::format("no rank is late as a rule: {} is the last at {:.0f} %",
                                 ranks[verdict.last].name,
                                 100 * share);
  else if (finding.share < kLadder.info)
    verdict.reason =
        fmt::format("ranks wait for each other {:.1f} % of a step", 100 * finding.share);
  else
    verdict.finding = std::move(finding);
  return verdict;
}

}  // namespace

void find_straggler(std::span<const RankView> ranks, RuleOutput& output) {
  Verdict verdict = verdict_of(ranks);
  if (verdict.finding)
    output.findings.push_back(std::move(*verdict.finding));
  else
    output.not_fired.push_back({"R24", std::move(verdict.reason)});
}

std::optional<size_t> late_rank(std::span<const RankView> ranks) {
  const Verdict verdict = verdict_of(ranks);
  return verdict.finding ? std::optional(verdict.last) : std::nullopt;
}

void r24_straggler(const Trace& trace, const Analysis& analysis, RuleOutput& output) {
  std::set<int32_t> devices;
  ByName communicates(trace, is_communication);
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kKernel && communicates(row))
      devices.insert(trace.lane_of(row).device);
  std::vector<RankView> ranks;
  for (int32_t device : devices) {
    RankView rank{&trace, &analysis, device, fmt::format("device {}", device)};
    ranks.insert(device == analysis.device ? ranks.begin() : ranks.end(), std::move(rank));
  }
  find_straggler(ranks, output);
}

}  // namespace ridge::doctor
