// Whether the outputs of a variant of a model are those of the model, as the class of its changes
// allows.
//
//   exact          the same bits as those of the best variant so far
//   reassociation  the error against f64 is at most kReassociation times that of the plain session,
//                  or of one rounding of the outputs
//   precision      besides, kPrecision times that of a control is allowed: f64 but for the operands
//                  of contractions, which are rounded to that dtype; no element is further off than
//                  kFarthest times the control's farthest; and the outputs as a whole do not grow
//                  or shrink (the slope on f64's)
//
//   bytes          a model whose products multiply bytes: the error's power is within the limit
//   that
//                  `ridge quantize` has where none is given (compress/drop.h)
//
// Errors are norms over an output of a sample, relative to its norm in f64. Where f64 has a finite
// element, so have the variants; integers are those of f64 wherever the plain session has them.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/infer/samples/model_samples.h"
#include "ridge/proof/guard_outcome.h"

namespace ridge {

struct JudgedOutputs {
  const SampleOutputs& oracle;     ///< In f64.
  const SampleOutputs& reference;  ///< Those of the plain session.
  const SampleOutputs& candidate;
  const SampleOutputs* control = nullptr;  ///< Needed for class kPrecision alone.
};

/// All have the same samples, at least one. What is told speaks of `samples`, such as "8 drawn
/// samples".
GuardOutcome judge_outputs(const JudgedOutputs& outputs,
                           SemanticClass semantic_class,
                           const std::string& samples);

/// The verdict on a quantized model, against the outputs in f64.
GuardOutcome judge_quantized(const SampleOutputs& oracle,
                             const SampleOutputs& candidate,
                             const std::string& samples);

/// The verdict on a change that keeps the bits.
GuardOutcome compare_outputs(const SampleOutputs& candidate, const SampleOutputs& expected);

}  // namespace ridge
