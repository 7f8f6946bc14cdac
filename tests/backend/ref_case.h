// Small graphs on the reference backend, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "ridge/backend/ref/ref_backend.h"
#include "ridge/run/evaluate.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

using Numbers = std::vector<double>;

/// Takes one graph: add operands by given() and list(), then run() it once.
class RefCase : public CaseBuilder {
 public:
  RefCase() : CaseBuilder(DType::kF32, 1) {}

  /// A vector of those elements.
  Value list(DType dtype, const Numbers& values) {
    return given({dtype, {static_cast<int64_t>(values.size())}}, values);
  }

  /// The elements of each value, evaluated.
  std::vector<Numbers> run_all(const std::vector<Value>& values) {
    finish(values);
    const auto ref = make_ref_backend();
    const NamedTensors results = evaluate(graph(), *ref, tensors());
    std::vector<Numbers> numbers;
    for (size_t i = 0; i < values.size(); ++i) {
      const Tensor& tensor = results.at(fmt::format("y{}", i));
      numbers.emplace_back();
      for (int64_t e = 0; e < tensor.elements(); ++e) numbers.back().push_back(tensor.at(e));
    }
    return numbers;
  }
  Numbers run(Value value) { return run_all({value}).front(); }

  /// The message, but for the site, of the UserError that running throws; empty when there is none.
  std::string error(Value value) {
    try {
      run(value);
    } catch (const UserError& e) {
      const std::string message = e.what();
      return message.substr(0, message.find(", at site"));
    }
    return {};
  }
};

/// Equal, or within `relative` of max(1, |want|); a NaN is equal to a NaN, and 0 to -0.
inline ::testing::AssertionResult same_numbers(const Numbers& got,
                                               const Numbers& want,
                                               double relative = 0.0) {
  if (got.size() != want.size())
    return ::testing::AssertionFailure() << got.size() << " elements, not " << want.size();
  for (size_t i = 0; i < got.size(); ++i) {
    const bool equal = got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i])) ||
                       std::fabs(got[i] - want[i]) <= relative * std::fmax(1.0, std::fabs(want[i]));
    if (!equal)
      return ::testing::AssertionFailure()
             << "element " << i << " is " << got[i] << ", not " << want[i];
  }
  return ::testing::AssertionSuccess();
}

}  // namespace ridge::test
