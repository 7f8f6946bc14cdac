#include "ridge/proof/record_trial.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

PairRecord pair_record(const Pair& pair) {
  const auto& outer = pair.before_outside ? pair.before : pair.after;
  const auto& inner = pair.before_outside ? pair.after : pair.before;
  return {.before_outside = pair.before_outside,
          .dropped = pair.dropped,
          .seconds = {outer[0].seconds, inner[0].seconds, inner[1].seconds, outer[1].seconds},
          .log_ratio = pair.log_ratio()};
}

}  // namespace

void record_trial(TrialRecord& record, const TrialResult& trial, const JudgeOptions& judge) {
  record.judge = judge;
  record.block_steps = trial.steps;
  record.after_block_steps = trial.after_steps;
  record.work = trial.work;
  for (const Pair& pair : trial.pairs) record.pairs.push_back(pair_record(pair));
  if (trial.interval)
    record.measured = {.low = std::exp(trial.interval->low),
                       .mid = std::exp(trial.gain),
                       .high = std::exp(trial.interval->high),
                       .confidence = trial.interval->confidence};
  record.verdict = trial.verdict == Verdict::kFaster      ? TrialVerdict::kKept
                   : trial.verdict == Verdict::kNotFaster ? TrialVerdict::kNotFaster
                                                          : TrialVerdict::kOpen;
  record.reason = trial.verdict == Verdict::kFaster      ? "faster"
                  : trial.verdict == Verdict::kNotFaster ? "not faster"
                                                         : open_reason(trial);
}

std::string open_reason(const TrialResult& trial) {
  return fmt::format(
      "no verdict after {} pairs{}",
      trial.pairs.size() - static_cast<size_t>(trial.dropped),
      trial.dropped > 0
          ? fmt::format(" ({} more were dropped: others took CPU time)", trial.dropped)
          : "");
}

double wait_share(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2]) {
  double waited = 0, seconds = 0;
  for (const Pair& pair : pairs)
    for (const Block& block : pair.*blocks) {
      waited += block.waited_seconds;
      seconds += block.seconds;
    }
  return seconds > 0 ? std::min(1.0, waited / seconds) : 0;
}

}  // namespace ridge
