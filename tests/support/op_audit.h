// The registry walk: what every op must have, checked by running its samples.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/graph/ops/registry.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// A small graph that uses one op. `build` makes operands of the builder's dtype and returns the
/// outputs; it is called once for each dtype that the op accepts.
struct OpSample {
  std::string op;
  std::string label;
  std::function<std::vector<Value>(CaseBuilder&)> build;
  /// For an op whose gradient is zero or unsupported only in this sample.
  bool check_gradient = true;
};

/// Adds samples to all_samples() when a test program starts.
struct OpSamples {
  explicit OpSamples(std::vector<OpSample> samples);
};
std::vector<OpSample>& all_samples();

/// The faults of op `name`: no sample that uses it, no shape rule, a gradient that is not declared,
/// a name that does not parse back, no kernel on a backend (on a GPU: nor a plain form), a dtype
/// for which a sample cannot run, results that differ between `backend` and `reference`, from the
/// printed and parsed graph or from the expansion, or a gradient that differs from finite
/// differences. Each line names the op.
std::vector<std::string> audit_op(const OpRegistry& registry,
                                  const std::string& name,
                                  const std::vector<OpSample>& samples,
                                  Backend& backend,
                                  Backend& reference);

}  // namespace ridge::test
