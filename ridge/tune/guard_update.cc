#include "ridge/tune/guard_update.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/tune/guard_tensors.h"

namespace ridge {
namespace {

// A parameter's update rounds each of its terms a few times; 16 leaves room for any order of them.
constexpr double kUpdateRoundings = 16;

// What a step keeps of the moment number `k`.
double kept(const nn::OptimizerOptions& o, size_t k) {
  if (o.kind != "adamw") return o.momentum;
  return k == 0 ? o.beta1 : o.beta2;
}

struct Parameter {
  std::string name;
  std::vector<std::string> moments;
};

std::vector<Parameter> parameters_of(const Variant& variant, const nn::OptimizerOptions& o) {
  std::vector<Parameter> list;
  for (const StateEntry& entry : variant.entries())
    if (entry.role == StateRole::kParameter)
      list.push_back({entry.name, nn::moment_names(o, entry.name)});
  return list;
}

// From m' = keep m + (a part of the gradient): the start that ends where the candidate did.
Tensor matched_start(const Tensor& start,
                     const Tensor& reference,
                     const Tensor& candidate,
                     double keep) {
  const auto m = to_doubles(start), r = to_doubles(reference), c = to_doubles(candidate);
  Tensor matched(start.type());
  for (size_t i = 0; i < m.size(); ++i)
    matched.set(static_cast<int64_t>(i), m[i] + (c[i] - r[i]) / keep);
  return matched;
}

StateSnapshot matched_snapshot(const GuardedStep& at,
                               const std::vector<Parameter>& parameters,
                               const nn::OptimizerOptions& o) {
  StateSnapshot matched = at.start;
  for (const Parameter& parameter : parameters)
    for (size_t k = 0; k < parameter.moments.size(); ++k) {
      const std::string& name = parameter.moments[k];
      matched[name] = matched_start(at.start.at(name),
                                    at.variants.reference.read(name),
                                    at.variants.candidate.read(name),
                                    kept(o, k));
    }
  return matched;
}

// Where cancellation kept the moments from becoming equal, the parameters say nothing.
std::vector<bool> equal_moments(const GuardedStep& at,
                                const Parameter& parameter,
                                double roundoff) {
  std::vector<bool> equal;
  for (const std::string& name : parameter.moments) {
    const auto r = to_doubles(at.variants.reference.read(name));
    const auto c = to_doubles(at.variants.candidate.read(name));
    equal.resize(c.size(), true);
    for (size_t i = 0; i < c.size(); ++i)
      if (!(std::fabs(r[i] - c[i]) <= kUpdateRoundings * roundoff * std::fabs(c[i])))
        equal[i] = false;
  }
  return equal;
}

UpdateError update_error(const GuardedStep& at, const Parameter& parameter) {
  const Tensor after = at.variants.reference.read(parameter.name);
  const double roundoff = unit_roundoff(after.type().dtype);
  const auto p = to_doubles(at.start.at(parameter.name)), r = to_doubles(after),
             c = to_doubles(at.variants.candidate.read(parameter.name));
  const std::vector<bool> equal = equal_moments(at, parameter, roundoff);
  double error = 0, update = 0, size = 0;
  int64_t compared = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (!equal[i]) continue;
    ++compared;
    error += (c[i] - r[i]) * (c[i] - r[i]);
    update += (r[i] - p[i]) * (r[i] - p[i]);
    size += r[i] * r[i];
  }
  UpdateError result{.tensor = parameter.name + ": update", .step = at.step};
  result.share = static_cast<double>(compared) / static_cast<double>(p.size());
  const double limit = kUpdateRoundings * roundoff * (std::sqrt(size) + 2 * std::sqrt(update));
  const double unit = update > 0 ? std::sqrt(update) : 1.0;
  result.error =
      std::isfinite(error) ? std::sqrt(error) / unit : std::numeric_limits<double>::infinity();
  result.limit = limit / unit;
  return result;
}

// (m' - beta1 m) / (1 - beta1) squared, against the same of v.
UpdateError moment_error(const GuardedStep& at,
                         const Parameter& parameter,
                         const nn::OptimizerOptions& o) {
  const Tensor after = at.variants.candidate.read(parameter.moments[0]);
  const auto m = to_doubles(at.start.at(parameter.moments[0])), m_new = to_doubles(after),
             v = to_doubles(at.start.at(parameter.moments[1])),
             v_new = to_doubles(at.variants.candidate.read(parameter.moments[1]));
  double error = 0, limit = 0, size = 0;
  for (size_t i = 0; i < m.size(); ++i) {
    const double g = (m_new[i] - o.beta1 * m[i]) / (1 - o.beta1);
    const double square = (v_new[i] - o.beta2 * v[i]) / (1 - o.beta2);
    // What rounding the moments does to either.
    const double of_g = 2 * std::fabs(g) * (std::fabs(m_new[i]) + std::fabs(m[i])) / (1 - o.beta1);
    const double of_square = (std::fabs(v_new[i]) + std::fabs(v[i])) / (1 - o.beta2);
    error += (square - g * g) * (square - g * g);
    limit += of_g * of_g + of_square * of_square;
    size += g * g * g * g;
  }
  const double unit = size > 0 ? std::sqrt(size) : 1.0;
  UpdateError result{.tensor = parameter.name + ": second moment", .step = at.step};
  result.error =
      std::isfinite(error) ? std::sqrt(error) / unit : std::numeric_limits<double>::infinity();
  result.limit = kUpdateRoundings * unit_roundoff(after.type().dtype) * std::sqrt(limit) / unit;
  return result;
}

bool is_kept_on_overflow(StateRole role) {
  return role == StateRole::kParameter || role == StateRole::kOptimizer ||
         role == StateRole::kStatistic;
}

bool all_zero(const Tensor& tensor) {
  const auto values = to_doubles(tensor);
  return std::all_of(values.begin(), values.end(), [](double v) { return v == 0; });
}

// The first parameter becomes NaN, which reaches the loss in any precision.
StateSnapshot poisoned_start(const GuardedStep& at) {
  StateSnapshot start = at.start;
  for (const StateEntry& entry : at.variants.reference.entries()) {
    if (entry.role != StateRole::kParameter) continue;
    Tensor& tensor = start.at(entry.name);
    for (int64_t i = 0; i < tensor.elements(); ++i)
      tensor.set(i, std::numeric_limits<double>::quiet_NaN());
    break;
  }
  return start;
}

bool same_values(const Tensor& a, const Tensor& b) {
  const auto x = to_doubles(a), y = to_doubles(b);
  return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](double u, double v) {
    return u == v || (std::isnan(u) && std::isnan(v));
  });
}

}  // namespace

std::vector<UpdateError> update_errors(const GuardedStep& at,
                                       const nn::OptimizerOptions& optimizer) {
  const std::vector<Parameter> parameters = parameters_of(at.variants.reference, optimizer);
  const StateSnapshot matched = matched_snapshot(at, parameters, optimizer);
  restore(at.variants.reference, matched);
  at.variants.reference.step(at.batch, at.step);
  std::vector<UpdateError> errors;
  for (const Parameter& parameter : parameters) errors.push_back(update_error(at, parameter));
  return errors;
}

std::vector<UpdateError> moment_errors(const GuardedStep& at,
                                       const nn::OptimizerOptions& optimizer) {
  std::vector<UpdateError> errors;
  if (optimizer.kind != "adamw") return errors;
  for (const Parameter& parameter : parameters_of(at.variants.reference, optimizer))
    errors.push_back(moment_error(at, parameter, optimizer));
  return errors;
}

std::vector<GuardFailure> flag_failures(const GuardedStep& at) {
  std::vector<GuardFailure> failures;
  const StateSnapshot reference = capture(at.variants.reference);
  for (const StateEntry& entry : at.variants.candidate.entries()) {
    if (entry.role != StateRole::kScaler || reference.count(entry.name) == 0) continue;
    const Tensor value = at.variants.candidate.read(entry.name);
    const Tensor& expected = reference.at(entry.name);
    if (same_values(value, expected)) continue;
    failures.push_back({GuardTest::kExact, entry.name, at.step, value.at(0), expected.at(0)});
  }
  return failures;
}

std::vector<GuardFailure> leftover_failures(const GuardedStep& at) {
  std::vector<GuardFailure> failures;
  for (const StateEntry& entry : at.variants.candidate.entries()) {
    if (entry.role != StateRole::kGradient) continue;
    const Tensor value = at.variants.candidate.read(entry.name);
    if (!all_zero(value))
      failures.push_back({GuardTest::kExact, entry.name, at.step, value.at(0), 0.0});
  }
  return failures;
}

std::vector<GuardFailure> overflow_failures(const GuardedStep& at) {
  const StateSnapshot start = poisoned_start(at);
  const GuardedStep poisoned{at.variants, start, at.batch, at.step};
  for (Variant* variant : {&at.variants.reference, &at.variants.candidate}) {
    restore(*variant, poisoned.start);
    variant->step(at.batch, at.step);
  }
  std::vector<GuardFailure> failures = flag_failures(poisoned);
  for (const StateEntry& entry : at.variants.reference.entries()) {
    if (!is_kept_on_overflow(entry.role)) continue;
    const Tensor& before = poisoned.start.at(entry.name);
    if (!same_values(at.variants.reference.read(entry.name), before)) continue;
    if (same_values(at.variants.candidate.read(entry.name), before)) continue;
    failures.push_back({GuardTest::kOverflow, entry.name, at.step, 1, 0});
  }
  for (GuardFailure& failure : failures) failure.test = GuardTest::kOverflow;
  return failures;
}

}  // namespace ridge
