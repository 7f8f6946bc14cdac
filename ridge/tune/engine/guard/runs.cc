// Class 2: whole runs in pairs, on the same data from the same state.
#include <algorithm>
#include <cmath>

#include "ridge/proof/paired_runs.h"
#include "ridge/tune/engine/guard/guard.h"
#include "ridge/tune/engine/guard/judgement.h"

namespace ridge {
namespace {

// All runs start from one state and have the same steps.
struct RunPlan {
  StateSnapshot start;
  int64_t first_step, steps;
};

// The last half of a run, which is what counts, has the full learning rate.
int64_t first_step(const GuardOptions& options) {
  return std::max<int64_t>(0, options.schedule.warmup - options.run_steps / 2);
}

// Mean loss over the last half of a run that sees order number `order` of the samples.
double run_loss(Variant& variant, const RunPlan& plan, const GuardData& data, int64_t order) {
  restore(variant, plan.start);
  GuardBatches batches(data, order);
  double sum = 0;
  for (int64_t step = 0; step < plan.steps; ++step) {
    const double loss = variant.step(batches.next(), plan.first_step + step);
    if (step >= plan.steps / 2) sum += loss;
  }
  return sum / static_cast<double>(plan.steps - plan.steps / 2);
}

}  // namespace

GuardReport guard_runs(const GuardVariants& variants,
                       const GuardData& data,
                       const GuardOptions& options) {
  check(options.pairs >= 3, "guard: {} pairs of runs; at least 3 are needed", options.pairs);
  check(options.run_steps >= 2, "guard: runs of {} steps; at least 2", options.run_steps);
  const RunPlan plan{snapshot_of(variants.reference), first_step(options), options.run_steps};
  GuardRuns runs{.pairs = options.pairs, .steps = options.run_steps};
  const auto loss = [&](Variant& variant, int64_t pair) {
    return run_loss(variant, plan, data, pair);
  };
  // The margin is fixed by what the order of the samples does to the reference, before the
  // candidate has run: a loss within it is one that another seed would have given.
  std::vector<double> reference, differences;
  for (int64_t pair = 0; pair < options.pairs; ++pair)
    reference.push_back(loss(variants.reference, pair));
  check(std::isfinite(mean(reference)),
        "guard: the loss of the program as it is was not finite in runs of {} steps",
        options.run_steps);
  runs.margin = fixed_margin(reference);
  for (int64_t pair = 0; pair < options.pairs; ++pair)
    differences.push_back(loss(variants.candidate, pair) - reference[static_cast<size_t>(pair)]);
  judge_pairs(differences, runs);
  restore(variants.reference, plan.start);
  GuardReport report;
  report.runs = runs;
  report.passed = runs.passed;
  if (!runs.passed)
    report.failures.push_back({GuardTest::kLoss, "", options.run_steps, runs.upper, runs.margin});
  report.text =
      runs.passed
          ? fmt::format(
                "no evidence of a loss above {:.3g}, at power {:.2f} ({} pairs of {} steps)",
                runs.margin,
                runs.power,
                runs.pairs,
                runs.steps)
          : describe(report.failures[0]);
  return report;
}

}  // namespace ridge
