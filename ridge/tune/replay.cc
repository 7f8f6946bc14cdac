#include "ridge/tune/replay.h"

#include <fmt/format.h>

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// The blocks of a replay take so many seconds at least, where there is four times as much.
constexpr double kReplaySeconds = 12;

// A block of a replay that has begun is waited for this long.
constexpr double kReplayPatience = 5;

}  // namespace

TrialResult replay(const TrialRecord& record, Target& target, double seconds, uint64_t seed) {
  check(!record.recipe.empty() && record.recipe != record.recipe_before,
        "trial {} ({}) changed nothing: there is nothing to prove",
        record.number,
        record.technique);
  const int64_t until = LoopBudget::deadline(seconds);
  const int64_t patient = LoopBudget::deadline(seconds + kReplayPatience);
  try {
    const auto before = target.open(record.recipe_before, 2, patient);
    const auto after = target.open(record.recipe, 2, patient);
    ProofOptions proof{.trial = target.trial_options({*before, *after}, until)};
    TrialOptions& options = proof.trial;
    options.seed = seed;
    options.judge = record.judge;
    options.least_pairs = kProofPairs;
    options.least_seconds = std::min(kReplaySeconds, seconds / 4);
    options.least_steps = std::max(options.least_steps, record.block_steps);
    return target.prove({*before, *after}, proof);
  } catch (const VariantFailed& failure) {
    throw UserError(fmt::format("trial {} cannot be run again: {}", record.number, failure.what()));
  } catch (const TrialStopped& stop) {
    throw UserError(fmt::format("trial {} was not proven again: {}", record.number, stop.what()),
                    "give it more time with --budget");
  }
}

}  // namespace ridge
