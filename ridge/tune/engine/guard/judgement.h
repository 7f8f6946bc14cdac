// Turns what the steps measured into verdicts.
#pragma once

#include <vector>

#include "ridge/tune/engine/guard/guard.h"
#include "ridge/tune/engine/guard/tensors.h"

namespace ridge {

/// A tensor and what was measured of it.
struct MeasuredTensor {
  Compared compared;
  int64_t elements = 0;
  std::vector<GroupSums> groups = {};
};

/// What the limits depend on.
struct JudgementRules {
  bool loses_precision =
      false;         ///< Class 2, and the candidate computes in less than f32 somewhere.
  size_t tests = 1;  ///< Of slopes, which share the 1 % with which one is failed by chance.
};

/// The tensor's row; what it fails goes to `failures`.
GuardRow judge_tensor(const MeasuredTensor& tensor,
                      const JudgementRules& rules,
                      std::vector<GuardFailure>& failures);

/// How far a failure lies beyond its limit: what failures are ordered by.
double excess(const GuardFailure& failure);
/// "slope 1.01 of layers.0.weight: gradient (step 4), expected 1 +- 0.002".
std::string describe(const GuardFailure& failure);

}  // namespace ridge
