// Runs are timed one by one: alone, or in turn with those of another by compare() (proof/trial.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "ridge/base/clock.h"
#include "ridge/proof/trial.h"

namespace ridge {

/// A clock, in ns: now_ns, but for tests.
using Clock = int64_t (*)();

/// A block is so many runs; compare() gets their sum.
class LatencyRunner : public Runner {
 public:
  Block run(int64_t steps) final;
  void warm(int64_t steps) final { time_runs(steps); }
  /// Seconds of each of so many runs.
  virtual std::vector<double> time_runs(int64_t runs) = 0;
  /// Seconds of each run of the last blocks, so many.
  std::vector<double> last_runs(size_t blocks) const;
  /// Seconds of each run of all blocks since the last call.
  std::vector<double> take_runs();

 private:
  std::vector<std::vector<double>> blocks_;
};

/// Times calls of a function.
class CallRunner final : public LatencyRunner {
 public:
  CallRunner(std::function<void()> call, Clock now) : call_(std::move(call)), now_(now) {}
  std::vector<double> time_runs(int64_t runs) override;

 private:
  std::function<void()> call_;
  Clock now_;
};

inline constexpr int64_t kLeastRuns = 10;

/// Seconds of each run until `seconds` have gone by, of kLeastRuns at least. The first ones warm it
/// up, and do not count.
std::vector<double> time_alone(LatencyRunner& runner, double seconds, Clock now);

struct PairedRuns {
  TrialResult trial;  ///< Its gain says how many times as fast `after` is.
  std::vector<double> before = {}, after = {};  ///< Seconds of each run of its pairs.
};

/// Blocks of both in turn until `seconds` have gone by, and until an interval can be had: where
/// they are few, blocks are short. Either of them ends early with stop_requested().
PairedRuns time_in_turn(LatencyRunner& before, LatencyRunner& after, double seconds, Clock now);

}  // namespace ridge
