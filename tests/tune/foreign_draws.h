// Records of runs whose truth is known, drawn from populations.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "ridge/tune/pytorch/guard/guard.h"

namespace ridge::test {

using attach::RunRecord;

/// What a program and its changes are like.
struct Population {
  int64_t steps = 40;
  double offset = 0;     ///< Of every loss.
  double batches = 0.1;  ///< Deviation of a loss from batch to batch.
  double seeds = 0.05;   ///< Of the later losses from seed to seed.
};

/// A candidate's difference from the baseline of the same seed.
struct Change {
  double first = 1e-7;  ///< Relative, of the first loss and gradient norm.
  double late = 0;      ///< Deviation of the mean of its later losses.
  double shift = 0;     ///< Of its later losses.
};

/// The effects of controls on a run.
constexpr Change kFineControl{.first = 1e-6}, kCoarseControl{.first = 3e-3};

class Draw {
 public:
  explicit Draw(uint64_t seed) : random_(seed) {}

  RunRecord run(const Population& of) {
    RunRecord record{.steps = of.steps, .is_whole = true, .source = "optimizer"};
    const double level = of.seeds * normal();
    for (int64_t step = 0; step < of.steps; ++step) {
      const double t = static_cast<double>(step) / static_cast<double>(of.steps);
      record.losses.push_back(of.offset + 1 + std::exp(-4 * t) + level * std::min(1.0, 4 * t) +
                              of.batches * normal());
      record.gradient_norms.push_back(2 + std::exp(-2 * t) + 0.1 * std::fabs(normal()));
    }
    record.parameters_hash = std::to_string(random_());
    return record;
  }

  ForeignBaseline baseline(const Population& of, size_t seeds) {
    ForeignBaseline baseline;
    for (size_t i = 0; i < seeds; ++i) baseline.seeds.push_back(run(of));
    baseline.again = baseline.seeds[0];
    Draw noise(77'000);  // of its own, so that what is drawn besides stays
    baseline.fine_controls = {noise.changed(baseline.seeds[0], kFineControl)};
    baseline.coarse_controls = {noise.changed(baseline.seeds[0], kCoarseControl)};
    return baseline;
  }

  RunRecord changed(RunRecord record, const Change& change) {
    const auto half = record.losses.size() / 2;
    const double late = change.shift + change.late * normal();
    for (size_t i = 0; i < record.losses.size(); ++i) {
      record.losses[i] += change.first * normal() + (i >= half ? late : 0);
      record.gradient_norms[i] *= 1 + change.first * normal();
    }
    record.parameters_hash += "x";
    return record;
  }

  std::vector<RunRecord> changed(const ForeignBaseline& baseline, const Change& change) {
    std::vector<RunRecord> all;
    for (const RunRecord& record : baseline.seeds) all.push_back(changed(record, change));
    return all;
  }

 private:
  double normal() { return normal_(random_); }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
};

}  // namespace ridge::test
