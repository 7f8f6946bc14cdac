#include "ridge/tune/trial.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/error.h"
#include "ridge/base/philox.h"
#include "ridge/base/stats.h"

namespace ridge {
namespace {

// Pairs that may be lost to stolen time for each that counts, and besides, before a trial gives up:
// others come and go in seconds.
constexpr int64_t kDroppedPerPair = 3, kDroppedBesides = 120;

constexpr double kConfidence = 0.95;

// Of a step that is shorter, what another process left in the caches is a part that counts: one is
// run before each block that follows one of the other variant's, and not timed.
constexpr double kWarmStepSeconds = 0.05;

constexpr int64_t kMostSteps = int64_t{1} << 30;

double time_of(const Block (&blocks)[2]) { return blocks[0].seconds + blocks[1].seconds; }

struct BlockSteps {
  int64_t timed = 1, warm = 0;
};

// Doubles the steps until a block is long enough for the clock, then scales to the length asked
// for. What these blocks cost also warms the variants up.
BlockSteps steps_of_block(Runner& before, Runner& after, const TrialOptions& options) {
  int64_t steps = std::max<int64_t>(1, options.least_steps);
  for (;;) {
    const double seconds = std::max(before.run(steps).seconds, after.run(steps).seconds);
    check_internal(std::isfinite(seconds) && seconds >= 0, "[compare] {} seconds", seconds);
    if (seconds < options.block_seconds / 4 && steps < kMostSteps) {
      steps *= 2;
      continue;
    }
    const bool warm = seconds < kWarmStepSeconds * static_cast<double>(steps);
    const double more = static_cast<double>(steps) * options.block_seconds / seconds;
    return {.timed = more < kMostSteps ? std::max<int64_t>(steps, std::llround(more)) : steps,
            .warm = warm ? 1 : 0};
  }
}

Pair run_pair(
    Runner& before, Runner& after, int64_t steps, int64_t warm_steps, bool before_outside) {
  Pair pair;
  pair.before_outside = before_outside;
  Runner& outer = before_outside ? before : after;
  Runner& inner = before_outside ? after : before;
  Block(&outer_blocks)[2] = before_outside ? pair.before : pair.after;
  Block(&inner_blocks)[2] = before_outside ? pair.after : pair.before;
  const auto run_after_other = [&](Runner& runner) {
    if (warm_steps > 0) runner.run(warm_steps);
    return runner.run(steps);
  };
  outer_blocks[0] = run_after_other(outer);
  inner_blocks[0] = run_after_other(inner);
  inner_blocks[1] = inner.run(steps);
  outer_blocks[1] = run_after_other(outer);
  return pair;
}

bool is_stolen_from(const Pair& pair, const TrialOptions& options) {
  double stolen = 0;
  for (const auto* blocks : {&pair.before, &pair.after})
    for (const Block& block : *blocks) stolen += block.stolen_seconds;
  return stolen > options.stolen_share * (time_of(pair.before) + time_of(pair.after)) *
                      static_cast<double>(options.cpus);
}

// Whether no further pair is needed.
bool is_told(const Judge& judge, const TrialOptions& options) {
  if (judge.verdict() == Verdict::kOpen) return false;
  if (static_cast<int64_t>(judge.log_ratios().size()) < options.least_pairs) return false;
  return judge.verdict() == Verdict::kNotFaster || judge.interval(kConfidence).has_value();
}

double median_step(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2], int64_t steps) {
  std::vector<double> seconds;
  for (const Pair& pair : pairs)
    for (const Block& block : pair.*blocks)
      seconds.push_back(block.seconds / static_cast<double>(steps));
  return seconds.empty() ? 0 : median(seconds);
}

}  // namespace

double Pair::log_ratio() const { return std::log(time_of(before) / time_of(after)); }

TrialResult compare(Runner& before, Runner& after, const TrialOptions& options) {
  TrialResult result;
  const BlockSteps steps = steps_of_block(before, after, options);
  result.steps = steps.timed;
  Judge judge(options.judge);
  const uint64_t key = rng_philox_key(options.seed, 0x636f696e);
  for (;;) {
    const auto judged = static_cast<int64_t>(judge.log_ratios().size());
    if (is_told(judge, options)) break;
    if (judged >= options.most_pairs || result.dropped > kDroppedPerPair * judged + kDroppedBesides)
      break;
    if (options.should_stop && options.should_stop()) break;
    const PhiloxWords coin = rng_block(key, 0, result.pairs.size());
    Pair pair = run_pair(before, after, steps.timed, steps.warm, (coin.word[0] & 1) != 0);
    pair.dropped = is_stolen_from(pair, options);
    if (pair.dropped)
      ++result.dropped;
    else
      judge.add(pair.log_ratio());
    result.pairs.push_back(pair);
  }
  result.verdict = judge.verdict();
  result.gain = judge.centre();
  result.interval = judge.interval(kConfidence);
  result.before_seconds = median_step(result.pairs, &Pair::before, result.steps);
  result.after_seconds = median_step(result.pairs, &Pair::after, result.steps);
  return result;
}

}  // namespace ridge
