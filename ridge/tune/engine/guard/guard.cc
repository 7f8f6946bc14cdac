#include "ridge/tune/engine/guard/guard.h"

#include "ridge/tune/engine/guard/judgement.h"

namespace ridge {

// Until a loss scale of at most 2^24 has settled, and one whose gradient overflows.
constexpr int64_t kScaleSteps = 25;

std::string_view name_of(GuardTest test) {
  switch (test) {
    case GuardTest::kHash:
      return "hash";
    case GuardTest::kAccuracy:
      return "accuracy";
    case GuardTest::kNoise:
      return "noise";
    case GuardTest::kSlope:
      return "slope";
    case GuardTest::kUpdate:
      return "update";
    case GuardTest::kExact:
      return "exact";
    case GuardTest::kOverflow:
      return "overflow";
    case GuardTest::kLoss:
      return "loss";
  }
  throw InternalError("[name_of] GuardTest out of range");
}

int64_t most_guard_steps(const GuardOptions& o) {
  if (o.semantic_class == SemanticClass::kBitIdentical) return 2 * o.hash_steps;
  const bool is_precision = o.semantic_class == SemanticClass::kPrecision;
  // Six points of the schedule and one with smaller batches; at each the update once more, and at
  // the first a step of both that is not finite.
  const int64_t points = 7 * o.rounds;
  const int64_t steps = points * (o.batches * (is_precision ? 4 : 3) + 1 + o.stride) + 2;
  return steps + (is_precision ? 2 * o.pairs * o.run_steps + kScaleSteps : 0);
}

GuardReport guard_hash(const GuardVariants& variants,
                       const GuardData& data,
                       const GuardOptions& options) {
  const StateSnapshot start = snapshot_of(variants.reference);
  restore(variants.candidate, start);
  GuardBatches batches(data, 0);
  bool same = true;
  int64_t step = 0;
  for (; same && step < options.hash_steps; ++step) {
    const data::Batch& batch = batches.next();
    variants.reference.step(batch, step);
    variants.candidate.step(batch, step);
    same = variants.reference.hash() == variants.candidate.hash();
  }
  restore(variants.reference, start);
  GuardReport report;
  report.points = step;
  report.passed = same;
  if (!same) report.failures.push_back({GuardTest::kHash, "", step, 1, 0});
  report.text = same ? fmt::format("the same bits after each of {} steps", step)
                     : describe(report.failures[0]);
  return report;
}

GuardReport guard(const GuardVariants& variants,
                  const GuardData& data,
                  const GuardOptions& options) {
  check(options.semantic_class != SemanticClass::kTrajectory,
        "guard: a change of the trajectory is another training run, without steps to compare");
  if (options.semantic_class == SemanticClass::kBitIdentical)
    return guard_hash(variants, data, options);
  GuardReport report = guard_steps(variants, data, options);
  if (options.semantic_class != SemanticClass::kPrecision || !report.passed) return report;
  const GuardReport runs = guard_runs(variants, data, options);
  report.passed = runs.passed;
  report.failures = runs.failures;
  report.runs = runs.runs;
  report.text += "; " + runs.text;
  return report;
}

}  // namespace ridge
