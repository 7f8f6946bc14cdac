#include "ridge/tune/engine/guard/trajectory.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/proof/paired_runs.h"

namespace ridge {
namespace {

// Evaluations of a run, spread over its last third: one alone would depend on the last batches.
constexpr int64_t kLooks = 4;

/// Where a run is looked at, in samples.
struct Looks {
  Looks(int64_t samples, int64_t batch)
      : last(samples), apart(std::max(batch, samples / 3 / kLooks / batch * batch)) {}
  // Before it losses do not count.
  int64_t begin() const { return std::max<int64_t>(0, last - kLooks * apart); }
  int64_t last, apart;
};

class Pairs {
 public:
  Pairs(const TrajectorySide& reference,
        const TrajectorySide& candidate,
        const data::Dataset& dataset,
        const TrajectoryOptions& options)
      : reference_(reference),
        candidate_(candidate),
        dataset_(dataset),
        options_(options),
        looks_(options.samples, std::max(reference.plan.batch, candidate.plan.batch)),
        start_(snapshot_of(reference.variant)) {}

  GuardReport run() {
    GuardRuns runs{.pairs = options_.pairs, .samples = options_.samples};
    std::vector<double> reference, differences;
    for (int64_t pair = 0; pair < options_.pairs; ++pair)
      reference.push_back(loss_of(reference_, pair));
    check(std::isfinite(mean(reference)),
          "guard: the loss of the program as it is was not finite in runs of {} samples",
          options_.samples);
    runs.margin = fixed_margin(reference);
    // One that is not finite decides.
    while (differences.size() < reference.size() &&
           (differences.empty() || std::isfinite(differences.back()))) {
      const size_t pair = differences.size();
      differences.push_back(loss_of(candidate_, static_cast<int64_t>(pair)) - reference[pair]);
    }
    if (std::isfinite(differences.back()))
      judge_pairs(differences, runs);
    else
      runs.lower = runs.difference = runs.upper = std::numeric_limits<double>::infinity();
    return report_of(runs);
  }

 private:
  // Of a run that sees order number `order` of the samples; NaN from the first loss on that is not
  // finite.
  double loss_of(const TrajectorySide& side, int64_t order) {
    restore(side.variant, start_);
    GuardBatches batches({.dataset = &dataset_, .plan = side.plan}, order);
    double sum = 0, weight = 0;
    int64_t next_look = looks_.begin() + looks_.apart;
    for (int64_t step = 0, at = 0; at < options_.samples; ++step) {
      const data::Batch& batch = batches.next();
      const double loss = side.variant.step(batch, step);
      if (!std::isfinite(loss)) return std::numeric_limits<double>::quiet_NaN();
      const int64_t begin = at;
      at = batch.end.epoch * dataset_.size() + batch.end.sample;
      if (side.held_out == nullptr && begin >= looks_.begin()) {
        sum += loss * static_cast<double>(batch.count);
        weight += static_cast<double>(batch.count);
      } else if (side.held_out != nullptr && at >= next_look) {
        sum += side.held_out();
        weight += 1;
        next_look += looks_.apart;
      }
    }
    return sum / weight;
  }

  GuardReport report_of(const GuardRuns& runs) const {
    GuardReport report;
    report.runs = runs;
    report.passed = runs.passed;
    if (!runs.passed) report.failures.push_back({GuardTest::kLoss, "", 0, runs.upper, runs.margin});
    report.text = finding_of(runs);
    if (!std::isfinite(runs.upper)) return report;
    report.text += fmt::format(
        " ({} pairs of runs from the start, {} loss; with 80 % one of {:.3g} would have shown)",
        runs.pairs,
        reference_.held_out ? "held-out" : "training",
        runs.detectable);
    if (runs.passed && runs.samples < options_.run_samples)
      report.text += "; nothing is shown of what comes after";
    return report;
  }

  std::string finding_of(const GuardRuns& runs) const {
    const std::string extent = fmt::format("{} of {} samples", runs.samples, options_.run_samples);
    if (runs.passed)
      return fmt::format("no evidence of a loss above {:.3g} after {}, at power {:.2f}",
                         runs.margin,
                         extent,
                         runs.power);
    if (!std::isfinite(runs.upper)) return fmt::format("the loss is not finite within {}", extent);
    if (runs.lower > runs.margin)
      return fmt::format("after {} the loss is worse by {:.3g} to {:.3g}, margin {:.3g}",
                         extent,
                         runs.lower,
                         runs.upper,
                         runs.margin);
    return fmt::format("cannot tell: after {} the loss may be worse by {:.3g}, margin {:.3g}",
                       extent,
                       runs.upper,
                       runs.margin);
  }

  const TrajectorySide &reference_, &candidate_;
  const data::Dataset& dataset_;
  const TrajectoryOptions& options_;
  Looks looks_;
  StateSnapshot start_;
};

}  // namespace

int64_t aligned_samples(int64_t wanted, int64_t epoch, int64_t batch) {
  return std::max(batch, wanted / epoch * epoch + wanted % epoch / batch * batch);
}

GuardReport guard_trajectory(const TrajectorySide& reference,
                             const TrajectorySide& candidate,
                             const data::Dataset& dataset,
                             const TrajectoryOptions& options) {
  check(options.pairs >= 3, "guard: {} pairs of runs; at least 3 are needed", options.pairs);
  check(options.samples >= 1, "guard: runs of {} samples", options.samples);
  return Pairs(reference, candidate, dataset, options).run();
}

}  // namespace ridge
