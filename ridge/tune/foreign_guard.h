// The guard for programs of others: whether a run with a change computes as one without. Nothing
// in the program is known, so whole runs of some steps are compared: losses, norms of gradients,
// bits of the parameters; the noise that counts is that of the program's own repeated and reseeded
// runs.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/attach/run_record.h"
#include "ridge/compile/pass.h"

namespace ridge {

/// Runs of the program without the change. The i-th of `seeds` ran with ShimOptions::reseed i;
/// `again` is the first once more.
struct ForeignBaseline {
  std::vector<attach::RunRecord> seeds;
  attach::RunRecord again;

  /// Whether the first run and `again` have the same bits: only then can class 0 be checked.
  bool is_repeatable() const;
};

struct ForeignGuardAnswer {
  bool passed = false;
  bool can_tell = true;  ///< False: neither passed nor failed, `text` says what is missing.
  std::optional<double> margin, power;  ///< Fixed before the candidate's runs; class 2 alone.
  std::string text;                     ///< One line: what was compared, and with what result.
};

/// The margin of a loss, and the power: from the baseline alone.
struct ForeignMargin {
  double margin = 0, power = 0;
};
ForeignMargin margin_of(const ForeignBaseline& baseline);

/// `candidates[i]` ran with the same reseed as `baseline.seeds[i]`. Not for kTrajectory.
ForeignGuardAnswer judge_runs(const ForeignBaseline& baseline,
                              const std::vector<attach::RunRecord>& candidates,
                              SemanticClass semantic_class);

}  // namespace ridge
