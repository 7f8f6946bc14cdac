// Records and runs as tests of ledgers and reports need them.
#pragma once

#include <cmath>

#include "ridge/base/philox.h"
#include "ridge/config/recipe.h"
#include "ridge/proof/ledger/ledger.h"

namespace ridge::test {

/// Pairs of blocks whose gain scatters around `gain`, ABBA and BAAB in turn; each seventh dropped.
inline std::vector<PairRecord> some_pairs(int count, double gain, uint64_t seed) {
  const uint64_t key = rng_philox_key(seed, 1);
  std::vector<PairRecord> pairs;
  for (int i = 0; i < count; ++i) {
    const PhiloxWords words = rng_block(key, 0, static_cast<uint64_t>(i));
    PairRecord pair;
    pair.before_outside = i % 2 == 0;
    pair.dropped = i % 7 == 6;
    for (size_t block = 0; block < 4; ++block) {
      const bool is_before = (block == 0 || block == 3) == pair.before_outside;
      const double noise = 1 + 0.02 * (words.word[block] * 0x1p-32 - 0.5);
      pair.seconds[block] = 0.2 * noise * (is_before ? 1 : std::exp(-gain));
    }
    pair.log_ratio = log_ratio_of(pair);
    pairs.push_back(pair);
  }
  return pairs;
}

/// What the judge says of the pairs, and the hash of the recipe.
inline void finish(TrialRecord& trial) {
  const Judge judge = judge_again(trial);
  const ConfidenceInterval interval = judge.interval(0.95).value();
  trial.measured = SpeedEstimate{
      std::exp(interval.low), std::exp(judge.centre()), std::exp(interval.high), 0.95};
  trial.recipe_hash = recipe_hash(parse_recipe(trial.recipe, "recipe"));
}

inline LedgerRun some_run() {
  return {.target = "run.toml on cpu",
          .config = "run.toml",
          .config_hash = "0123456789abcdef",
          .machine = "cpu; a processor; 2 CPUs",
          .version = "0.1.0",
          .started = "2026-11-21T20:15:03Z",
          .budget_s = 120,
          .seed = 18446744073709551615u};
}

inline TrialRecord kept_trial(int64_t number = 1) {
  TrialRecord trial;
  trial.number = number;
  trial.technique = "loader.workers";
  trial.change = "loader.workers 0 -> 2";
  trial.hypothesis = "batches are made while a step computes";
  trial.predicted = SpeedRange{1.2, 1.5};
  trial.ceiling = 1.6;
  trial.block_steps = trial.after_block_steps = 20;
  trial.pairs = some_pairs(15, std::log(1.35), 3);
  trial.verdict = TrialVerdict::kKept;
  trial.reason = "faster, and the same bits";
  trial.guard = "the state has the same bits after 3 steps";
  trial.recipe = "[loader]\nworkers = 2\n";
  trial.plan_hash = "89abcdef01234567";
  trial.machine = "cpu; a processor; 2 CPUs";
  trial.started = "2026-11-21T20:15:10Z";
  trial.seconds = 9.25;
  finish(trial);
  return trial;
}

inline TrialRecord untried_trial(int64_t number) {
  TrialRecord trial;
  trial.number = number;
  trial.technique = "micro";
  trial.ceiling = 1.01;
  trial.reason = "ceiling 1.01";
  return trial;
}

inline TrialRecord slow_trial(int64_t number) {
  TrialRecord trial = kept_trial(number);
  trial.technique = "bf16";
  trial.change = "train.precision \"f32\" -> \"bf16\"";
  trial.semantic_class = SemanticClass::kPrecision;
  trial.predicted = SpeedRange{0.9, 1.1};
  trial.pairs = some_pairs(15, std::log(0.9), 4);
  trial.verdict = TrialVerdict::kNotFaster;
  trial.reason = "not faster by 2 %";
  trial.guard = "";
  trial.recipe = "[train]\nprecision = \"bf16\"\n";
  finish(trial);
  return trial;
}

}  // namespace ridge::test
