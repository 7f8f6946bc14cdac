// The guard for third-party programs: whether a run with a change computes as one without. Nothing
// in the program is known, so whole runs of some steps are compared: losses, norms of gradients,
// bits of the parameters, or outputs. The noise that counts is that of the program's own repeated
// and reseeded runs.
//
// Of classes 1 and 2 two things are asked for. In the first steps, before errors can have grown,
// the batches are the same, and losses, gradients and updates of each tensor lie no farther from
// those of the program as it is than a few times what controls show: runs of the program with a
// harmless change of the candidate's size. Training amplifies any rounding, each program by another
// factor, and a control has the program's own. And the losses of the later half are no worse than
// another seed would have made them: with two deviations of that over the seeds as the margin,
// tested on pairs of runs with the same seed. The power is that of pairs that differ as runs of two
// seeds do, which is the worst that a change without any harm could do; so it is known before the
// candidate runs. Of class 3, whose runs are those of another seed by their nature, the second
// alone is asked for.
//
// What runs of some steps cannot show is what comes after them.
#pragma once

#include <cstdint>
#include <vector>

#include "ridge/attach/run_record.h"
#include "ridge/base/semantic_class.h"
#include "ridge/proof/guard_outcome.h"

namespace ridge {

/// Classes 2 and 3 need at least so many; fewer seeds have a power below a half.
inline constexpr int64_t kForeignSteps = 16, kForeignSeeds = 4;

/// By how much controls move parameters and gradients: by a unit in the last place of their own
/// dtype, and of bf16 (ShimOptions::nudge).
inline constexpr double kFineNudge = 0x1p-60, kCoarseNudge = 0x1p-8;

/// Runs of the program without the change. The i-th of `seeds` ran with ShimOptions::reseed i;
/// `again` is the first once more. Controls ran with reseed 0: fine ones with kFineNudge or another
/// number of threads, which class 1 needs; coarse ones with kCoarseNudge, which class 2 needs, and
/// class 1 where the program is coarse itself.
struct ForeignBaseline {
  std::vector<attach::RunRecord> seeds;
  attach::RunRecord again;
  std::vector<attach::RunRecord> fine_controls{}, coarse_controls{};

  /// Whether the first run and `again` have the same bits: only then can class 0 be checked.
  bool is_repeatable() const;
};

/// The margin of a loss, and the power: from the baseline alone. Zeros where it has no losses or
/// only one seed.
struct ForeignMargin {
  double margin = 0, power = 0;
};
ForeignMargin margin_of(const ForeignBaseline& baseline);

/// The record of a run whose steps take `work` times as many samples, step by step as a run over
/// the same samples has it: each loss and norm stands `work` times. Nothing else is changed. A loss
/// is that of the weights before its step, so the run counts as up to a half of a step behind.
attach::RunRecord by_samples(attach::RunRecord record, int64_t work);

/// `candidates[i]` ran with the same reseed as `baseline.seeds[i]`; there may be fewer of them, for
/// classes 2 and 3 not. Of a program that only calls modules one seed is enough, and class 3 cannot
/// be told.
GuardOutcome judge_runs(const ForeignBaseline& baseline,
                        const std::vector<attach::RunRecord>& candidates,
                        SemanticClass semantic_class);

}  // namespace ridge
