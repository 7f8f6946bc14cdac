#include "ridge/proof/trial_record.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/stats.h"

namespace ridge {

double log_ratio_of(const PairRecord& pair, double work) {
  const double outer = pair.seconds[0] + pair.seconds[3];
  const double inner = pair.seconds[1] + pair.seconds[2];
  const double ratio = pair.before_outside ? std::log(outer / inner) : std::log(inner / outer);
  return work == 1 ? ratio : ratio + std::log(work);
}

int64_t TrialRecord::dropped_pairs() const {
  return std::count_if(
      pairs.begin(), pairs.end(), [](const PairRecord& pair) { return pair.dropped; });
}

int64_t TrialRecord::judged_pairs() const {
  return static_cast<int64_t>(pairs.size()) - dropped_pairs();
}

std::optional<double> TrialRecord::gain() const {
  constexpr int64_t kLeastPairs = 3;
  if (measured) return measured->mid;
  if (judged_pairs() < kLeastPairs) return std::nullopt;
  std::vector<double> ratios;
  for (const PairRecord& pair : pairs)
    if (!pair.dropped) ratios.push_back(pair.log_ratio);
  return std::exp(median(ratios));
}

bool is_of_technique(const TrialRecord& record) {
  return record.technique != kProofTechnique && !record.technique.starts_with(kWithout);
}

std::vector<const TrialRecord*> kept_steps(std::span<const TrialRecord> trials) {
  std::vector<const TrialRecord*> steps;
  for (const TrialRecord& trial : trials) {
    if (is_of_technique(trial) && trial.verdict == TrialVerdict::kKept && trial.measured)
      steps.push_back(&trial);
    if (trial.verdict != TrialVerdict::kDropped || !trial.technique.starts_with(kWithout)) continue;
    std::erase_if(steps, [&](const TrialRecord* step) {
      return trial.technique.substr(kWithout.size()) == step->technique &&
             trial.change == step->change;
    });
  }
  return steps;
}

Judge judge_again(const TrialRecord& record) {
  Judge judge(record.judge);
  for (const PairRecord& pair : record.pairs)
    if (!pair.dropped) judge.add(pair.log_ratio);
  return judge;
}

}  // namespace ridge
