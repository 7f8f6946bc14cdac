#include "ridge/tune/onnx/latency_runner.h"

#include <algorithm>
#include <numeric>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/stop.h"

namespace ridge {
namespace {

constexpr int64_t kWarmRuns = 2;
// Fewer pairs give no interval.
constexpr int64_t kLeastPairs = 12;
constexpr int64_t kMostPairs = 1'000'000;
constexpr uint64_t kSeed = 0x62656e6368;

int64_t ns_of(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace

Block LatencyRunner::run(int64_t steps) {
  const double stolen = stolen_seconds();
  const std::vector<double>& runs = blocks_.emplace_back(time_runs(steps));
  return {.seconds = std::accumulate(runs.begin(), runs.end(), 0.0),
          .stolen_seconds = stolen_seconds() - stolen};
}

std::vector<double> LatencyRunner::last_runs(size_t blocks) const {
  std::vector<double> runs;
  for (size_t i = blocks_.size() - std::min(blocks, blocks_.size()); i < blocks_.size(); ++i)
    runs.insert(runs.end(), blocks_[i].begin(), blocks_[i].end());
  return runs;
}

std::vector<double> LatencyRunner::take_runs() {
  std::vector<double> runs = last_runs(blocks_.size());
  blocks_.clear();
  return runs;
}

std::vector<double> CallRunner::time_runs(int64_t runs) {
  std::vector<double> seconds;
  seconds.reserve(static_cast<size_t>(runs));
  for (int64_t i = 0; i < runs; ++i) {
    const int64_t start = now_();
    call_();
    seconds.push_back(static_cast<double>(now_() - start) * 1e-9);
  }
  return seconds;
}

std::vector<double> time_alone(LatencyRunner& runner, double seconds, Clock now) {
  runner.warm(kWarmRuns);
  std::vector<double> runs;
  const int64_t until = now() + ns_of(seconds);
  while (std::ssize(runs) < kLeastRuns || (now() < until && !stop_requested()))
    runs.push_back(runner.time_runs(1).at(0));
  return runs;
}

PairedRuns time_in_turn(LatencyRunner& before, LatencyRunner& after, double seconds, Clock now) {
  const int64_t until = now() + ns_of(seconds);
  int64_t pairs = 0;
  TrialOptions options;
  options.seed = kSeed;
  options.least_pairs = options.most_pairs = kMostPairs;  // no verdict is wanted
  options.cpus = usable_cpus();
  constexpr double kBlocks = 4.0 * kLeastPairs;
  options.block_seconds = std::min(options.block_seconds, seconds / kBlocks);
  options.should_stop = [&] {
    return stop_requested() || (pairs++ >= kLeastPairs && now() >= until);
  };
  PairedRuns both{.trial = compare(before, after, options)};
  const size_t blocks = 2 * both.trial.pairs.size();
  both.before = before.last_runs(blocks);
  both.after = after.last_runs(blocks);
  return both;
}

}  // namespace ridge
