#include "ridge/proof/trial.h"

#include <algorithm>
#include <cmath>

#include "ridge/base/clock.h"
#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/error.h"
#include "ridge/base/philox.h"
#include "ridge/base/stats.h"
#include "ridge/base/stop.h"

namespace ridge {
namespace {

// Pairs that may be lost to stolen time for each that counts, and besides, before a trial gives up:
// others come and go in seconds.
constexpr int64_t kDroppedPerPair = 3, kDroppedBesides = 120;

constexpr int64_t kMostSteps = int64_t{1} << 30;

/// Steps of a block of each variant, for the same samples.
struct BlockSteps {
  int64_t before = 0, after = 0;
};

/// The timed steps of a block, and those that run before it to warm up.
struct BlockPlan {
  BlockSteps timed, warm;
};

// `least` of those that do more work, and as many of the others as do the same.
BlockSteps steps_for(int64_t least, double work) {
  const auto others = [least](double ratio) {
    return std::llround(
        std::min(static_cast<double>(kMostSteps), static_cast<double>(least) * ratio));
  };
  return work >= 1 ? BlockSteps{others(work), least} : BlockSteps{least, others(1 / work)};
}

double time_of(const Block (&blocks)[2]) { return blocks[0].seconds + blocks[1].seconds; }

// Doubles the steps until a block is long enough for the clock, then scales to the length asked
// for. What these blocks cost also warms the variants up.
BlockPlan plan_blocks(Runner& before, Runner& after, const TrialOptions& options) {
  int64_t least = std::max<int64_t>(1, options.least_steps);
  for (;;) {
    const BlockSteps tried = steps_for(least, options.work);
    const double seconds =
        std::max(before.run(tried.before).seconds, after.run(tried.after).seconds);
    check_internal(std::isfinite(seconds) && seconds >= 0, "[compare] {} seconds", seconds);
    if (seconds < options.block_seconds / 4 && least < kMostSteps) {
      least *= 2;
      continue;
    }
    const bool warm = seconds < kWarmStepSeconds * static_cast<double>(least);
    const double more = static_cast<double>(least) * options.block_seconds / seconds;
    if (more < kMostSteps) least = std::max<int64_t>(least, std::llround(more));
    return {.timed = steps_for(least, options.work),
            .warm = warm ? steps_for(1, options.work) : BlockSteps{}};
  }
}

Pair run_pair(Runner& before, Runner& after, const BlockPlan& plan, bool before_outside) {
  Pair pair;
  pair.before_outside = before_outside;
  Runner& outer = before_outside ? before : after;
  Runner& inner = before_outside ? after : before;
  Block(&outer_blocks)[2] = before_outside ? pair.before : pair.after;
  Block(&inner_blocks)[2] = before_outside ? pair.after : pair.before;
  // Before every block, so that both variants have timed the same batches of their epoch.
  const auto run = [&](Runner& runner) {
    const bool is_before = &runner == &before;
    if (const int64_t steps = is_before ? plan.warm.before : plan.warm.after; steps > 0)
      runner.warm(steps);
    return runner.run(is_before ? plan.timed.before : plan.timed.after);
  };
  outer_blocks[0] = run(outer);
  inner_blocks[0] = run(inner);
  inner_blocks[1] = run(inner);
  outer_blocks[1] = run(outer);
  return pair;
}

double stolen_share(const Pair& pair, int cpus) {
  double stolen = 0;
  for (const auto* blocks : {&pair.before, &pair.after})
    for (const Block& block : *blocks) stolen += block.stolen_seconds;
  return stolen / ((time_of(pair.before) + time_of(pair.after)) * static_cast<double>(cpus));
}

/// Finds pairs from which others stole too much CPU time. If they steal all of the time, only pairs
/// far above the usual are dropped. Either way it is the same for both variants.
class Stolen {
 public:
  explicit Stolen(const TrialOptions& options) : options_(options) {}
  bool is_too_much(const Pair& pair) {
    shares_.push_back(stolen_share(pair, options_.cpus));
    double most = options_.stolen_share;
    if (shares_.size() >= kToKnow)
      most = std::max(most, std::min(kHardlyOurs, kFarAbove * median(shares_)));
    return shares_.back() > most;
  }

 private:
  static constexpr size_t kToKnow = 5;
  static constexpr double kFarAbove = 1.5, kHardlyOurs = 0.3;
  const TrialOptions& options_;
  std::vector<double> shares_;
};

// Whether no further pair is needed.
bool is_told(const Judge& judge, double timed_seconds, const TrialOptions& options) {
  if (judge.verdict() == Verdict::kOpen) return false;
  if (static_cast<int64_t>(judge.log_ratios().size()) < options.least_pairs ||
      timed_seconds < options.least_seconds)
    return false;
  return borne_out(judge) != Verdict::kOpen;
}

double median_step(const std::vector<Pair>& pairs, const Block (Pair::*blocks)[2], int64_t steps) {
  std::vector<double> seconds;
  for (const Pair& pair : pairs)
    for (const Block& block : pair.*blocks)
      seconds.push_back(block.seconds / static_cast<double>(steps));
  return seconds.empty() ? 0 : median(seconds);
}

}  // namespace

TrialOptions trial_until(int64_t until_ns, uint64_t seed) {
  TrialOptions options;
  options.seed = seed;
  options.cpus = usable_cpus();
  options.until_ns = until_ns;
  options.should_stop = [until_ns] { return stop_requested() || now_ns() > until_ns; };
  return options;
}

double block_seconds(const TrialOptions& options, double step_seconds) {
  const double steps = step_seconds * static_cast<double>(options.least_steps);
  return std::max(options.block_seconds, steps) +
         (step_seconds < kWarmStepSeconds ? step_seconds : 0);
}

double Pair::log_ratio() const {
  const double ratio = std::log(time_of(before) / time_of(after));
  return work == 1 ? ratio : ratio + std::log(work);
}

TrialResult compare(Runner& before, Runner& after, const TrialOptions& options) {
  check_internal(
      options.work > 0 && std::isfinite(options.work), "[compare] work {}", options.work);
  TrialResult result;
  before.rewind();
  after.rewind();
  const BlockPlan plan = plan_blocks(before, after, options);
  result.steps = plan.timed.before;
  result.after_steps = plan.timed.after;
  result.work =
      options.work * static_cast<double>(result.after_steps) / static_cast<double>(result.steps);
  Judge judge(options.judge);
  Stolen stolen(options);
  double timed_seconds = 0;
  const uint64_t key = rng_philox_key(options.seed, 0x636f696e);
  for (;;) {
    const auto judged = static_cast<int64_t>(judge.log_ratios().size());
    if (is_told(judge, timed_seconds, options)) break;
    if (judged >= options.most_pairs || result.dropped > kDroppedPerPair * judged + kDroppedBesides)
      break;
    if (options.should_stop && options.should_stop()) break;
    const PhiloxWords coin = rng_block(key, 0, result.pairs.size());
    Pair pair;
    try {
      pair = run_pair(before, after, plan, (coin.word[0] & 1) != 0);
    } catch (const TrialStopped&) {
      // The end of the time cut it in two: those before it stand.
      if (result.pairs.empty()) throw;
      break;
    }
    pair.work = result.work;
    timed_seconds += time_of(pair.before) + time_of(pair.after);
    pair.dropped = stolen.is_too_much(pair);
    if (pair.dropped)
      ++result.dropped;
    else
      judge.add(pair.log_ratio());
    result.pairs.push_back(pair);
  }
  result.verdict = borne_out(judge);
  result.gain = judge.centre();
  result.interval = judge.interval(kVerdictConfidence);
  result.before_seconds = median_step(result.pairs, &Pair::before, result.steps);
  result.after_seconds = median_step(result.pairs, &Pair::after, result.after_steps);
  return result;
}

}  // namespace ridge
