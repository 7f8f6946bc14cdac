// R30 of what was seen from outside: more threads than processors, a quota, other programs.
#include <fmt/format.h>

#include <algorithm>

#include "ridge/doctor/findings/measures.h"
#include "ridge/doctor/live/live_parts.h"

namespace ridge::doctor {
namespace {

// Shares below `info` are usual: the machine's own threads and its observers need processors too.
constexpr Ladder kLadder{.info = 0.12, .warning = 0.20, .high = 0.35};
constexpr double kCrowded = 1.15;  // Threads that want a processor, of those that there are.
constexpr double kHeldUp = 0.25;   // Threads beside the one that trains that have no processor.

// Shares of a step, at most.
struct Contention {
  double throttled = 0, queue = 0, crowd = 0, held_up = 0;
  double share() const { return std::max({throttled, queue, crowd, held_up}); }
};

// Threads that are busy now and then count for the part of the time in which they are.
double wanting(const LiveFacts& facts) {
  return facts.used_cpus >= 0 && facts.queue >= 0 ? facts.used_cpus + facts.queue
                                                  : facts.busy_threads;
}

Contention contention_of(const LiveFacts& facts, const Analysis& analysis) {
  Contention found;
  found.throttled = std::max(0.0, facts.throttled);
  found.queue = std::max(0.0, facts.main_queue);
  const double processors = processors_of(facts);
  // Threads beyond the processors give a step no more work to do; what is lost is the time in which
  // those that are ready wait for those that run, and all wait for the last at each barrier.
  if (analysis.is_cpu_only && processors > 0 &&
      static_cast<double>(facts.torch_threads) > processors &&
      wanting(facts) > kCrowded * processors)
    found.crowd = 1 - processors / wanting(facts);
  // Not more threads than processors, but another program has some of these: all threads of an
  // operator wait for the one that does not run, and look busy.
  const double beside = facts.queue - std::max(0.0, facts.main_queue);
  if (analysis.is_cpu_only && found.crowd == 0 && facts.torch_threads > facts.ranks &&
      facts.loader_workers <= 0 && beside >= kHeldUp)
    found.held_up = std::min(beside, 0.9);
  // Beside a device a late thread costs only what the device waits.
  const Breakdown& mean = analysis.breakdown;
  if (!analysis.is_cpu_only && mean.wall > 0) {
    const double starved = std::clamp(mean.starved / mean.wall, 0.0, 1.0);
    found.throttled *= starved;
    found.queue *= starved;
  }
  return found;
}

std::string threads_text(const LiveFacts& facts) {
  std::string text = fmt::format(
      "over {:.1f} s {:.1f} threads wanted a processor and {:.1f} of {:g} "
      "were used",
      facts.seconds,
      facts.busy_threads,
      facts.used_cpus,
      processors_of(facts));
  if (facts.torch_threads > 0)
    text += fmt::format("; operators compute with {} threads{}",
                        facts.torch_threads,
                        facts.ranks > 1 ? fmt::format(" of {} processes", facts.ranks) : "");
  if (facts.loader_workers > 0) text += fmt::format(", and {} load data", facts.loader_workers);
  return text;
}

void explain(const LiveFacts& facts, const Contention& found, Finding& finding) {
  const auto processors = std::max<int64_t>(1, static_cast<int64_t>(processors_of(facts)));
  const int64_t threads = std::max<int64_t>(1, processors / std::max<int64_t>(1, facts.ranks));
  const bool is_crowded =
      facts.torch_threads > processors && (found.crowd > 0 || found.queue > found.throttled);
  if (found.throttled > std::max(found.queue, found.crowd)) {
    finding.title = fmt::format("the control group stops the program: its quota is {:g} processors",
                                facts.quota_cpus);
    finding.fix = fmt::format(
        "give it a larger quota, or as many threads as the quota has processors: "
        "torch.set_num_threads({0}), OMP_NUM_THREADS={0}{1}",
        threads,
        facts.ranks > 1 ? " in each process" : "");
  } else if (is_crowded) {
    finding.title = fmt::format("{} threads{} for {} processors: they wait for each other",
                                facts.torch_threads,
                                facts.ranks > 1 ? fmt::format(" of {} processes", facts.ranks) : "",
                                processors);
    finding.fix = facts.ranks > 1
                      ? fmt::format(
                            "as many threads as processors, over all {1} processes: in each "
                            "torch.set_num_threads({0}) or OMP_NUM_THREADS={0}",
                            threads,
                            facts.ranks)
                      : fmt::format(
                            "as many threads as processors: torch.set_num_threads({0}) or "
                            "OMP_NUM_THREADS={0}",
                            threads);
  } else {
    finding.title = found.held_up > found.queue
                        ? "operators wait for threads of theirs that have no processor"
                        : "the thread that trains waits for a processor";
    finding.fix =
        "leave it a processor: end or move what else computes there, with fewer workers and "
        "threads "
        "than processors over all programs";
  }
}

}  // namespace

double processors_of(const LiveFacts& facts) {
  const auto cpus = static_cast<double>(std::max<int64_t>(0, facts.cpus));
  if (!(facts.quota_cpus > 0)) return cpus;
  return cpus > 0 ? std::min(cpus, facts.quota_cpus) : facts.quota_cpus;
}

void judge_processors(const LiveFacts& facts, const Analysis& analysis, RuleOutput& output) {
  if (!(facts.seconds > 0) || !(analysis.breakdown.wall > 0)) return;
  const Contention found = contention_of(facts, analysis);
  const std::string waits = fmt::format(
      "the thread that trains waits for a processor {:.1f} % of the time, its control "
      "group is stopped {:.1f} %",
      100 * std::max(0.0, facts.main_queue),
      100 * std::max(0.0, facts.throttled));
  if (found.share() < kLadder.info) {
    output.not_fired.push_back({"R30", waits});
    return;
  }
  Finding finding{.rule = "R30"};
  explain(facts, found, finding);
  finding.confidence = 0.8;
  charge(finding, analysis, found.share() * analysis.breakdown.wall);
  finding.severity = severity_of(finding.share, kLadder);
  // The thread's own waits surely come back; the waits of its helpers count for 0.3.
  const double sure =
      std::max({found.throttled, found.queue, 0.3 * std::max(found.crowd, found.held_up)});
  finding.predicted.low = speedup_without(0.7 * sure, 1);
  finding.evidence.push_back({.text = threads_text(facts)});
  finding.evidence.push_back({.text = waits});
  output.findings.push_back(std::move(finding));
}

}  // namespace ridge::doctor
