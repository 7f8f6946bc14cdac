#include "ridge/tune/engine/guard/update.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/unit_roundoff.h"
#include "ridge/nn/loss_scale.h"
#include "ridge/tune/engine/guard/tensors.h"

namespace ridge {
namespace {

// A parameter's update rounds each of its terms a few times; 16 leaves room for any order of them.
constexpr double kUpdateRoundings = 16;

// What a step keeps of the moment number `k`.
double kept(const nn::OptimizerOptions& o, size_t k) {
  if (o.kind != nn::OptimizerKind::kAdamW) return o.momentum;
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
  Tensor matched(start.type());
  for_pieces(start.elements(), [&](Piece piece) {
    const auto m = to_doubles(start, piece), r = to_doubles(reference, piece),
               c = to_doubles(candidate, piece);
    for (size_t i = 0; i < m.size(); ++i)
      matched.set(piece.first + static_cast<int64_t>(i), m[i] + (c[i] - r[i]) / keep);
  });
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

// A parameter or a moment after the step, in both.
struct Both {
  Tensor reference, candidate;
};

Both read_both(const GuardVariants& variants, const std::string& name) {
  return {variants.reference.read(name), variants.candidate.read(name)};
}

struct UpdateSums {
  int64_t compared = 0;
  double error = 0, update = 0, size = 0;
};

// Where cancellation kept the moments from becoming equal, the parameters say nothing.
std::vector<bool> equal_moments(const std::vector<Both>& moments, Piece piece, double roundoff) {
  std::vector<bool> equal(static_cast<size_t>(piece.count), true);
  for (const Both& moment : moments) {
    const auto r = to_doubles(moment.reference, piece), c = to_doubles(moment.candidate, piece);
    for (size_t i = 0; i < c.size(); ++i)
      if (!(std::fabs(r[i] - c[i]) <= kUpdateRoundings * roundoff * std::fabs(c[i])))
        equal[i] = false;
  }
  return equal;
}

UpdateError update_error(const GuardedStep& at, const Parameter& parameter) {
  const Tensor& before = at.start.at(parameter.name);
  const double roundoff = unit_roundoff(before.type().dtype);
  const Both after = read_both(at.variants, parameter.name);
  std::vector<Both> moments;
  for (const std::string& name : parameter.moments) moments.push_back(read_both(at.variants, name));
  UpdateSums sums;
  for_pieces(before.elements(), [&](Piece piece) {
    const auto p = to_doubles(before, piece), r = to_doubles(after.reference, piece),
               c = to_doubles(after.candidate, piece);
    const std::vector<bool> equal = equal_moments(moments, piece, roundoff);
    for (size_t i = 0; i < p.size(); ++i) {
      if (!equal[i]) continue;
      ++sums.compared;
      sums.error += (c[i] - r[i]) * (c[i] - r[i]);
      sums.update += (r[i] - p[i]) * (r[i] - p[i]);
      sums.size += r[i] * r[i];
    }
  });
  const double update = std::sqrt(sums.update), unit = update > 0 ? update : 1.0;
  const double limit = kUpdateRoundings * roundoff * (std::sqrt(sums.size) + 2 * update);
  const double error =
      std::isfinite(sums.error) ? std::sqrt(sums.error) : std::numeric_limits<double>::infinity();
  return {.tensor = parameter.name + ": update",
          .step = at.step,
          .error = error / unit,
          .limit = limit / unit,
          .share = static_cast<double>(sums.compared) / static_cast<double>(before.elements())};
}

struct MomentSums {
  double error = 0, limit = 0, size = 0;
};

// One element before and after the step; the limit is what rounding the moments does to either side
// of g^2 = (v' - beta2 v) / (1 - beta2), with g = (m' - beta1 m) / (1 - beta1).
void add_moment(MomentSums& sums, double m, double m_new, double v, double v_new, const auto& o) {
  const double g = (m_new - o.beta1 * m) / (1 - o.beta1);
  const double square = (v_new - o.beta2 * v) / (1 - o.beta2);
  const double of_g = 2 * std::fabs(g) * (std::fabs(m_new) + std::fabs(m)) / (1 - o.beta1);
  const double of_square = (std::fabs(v_new) + std::fabs(v)) / (1 - o.beta2);
  sums.error += (square - g * g) * (square - g * g);
  sums.limit += of_g * of_g + of_square * of_square;
  sums.size += g * g * g * g;
}

UpdateError moment_error(const GuardedStep& at,
                         const Parameter& parameter,
                         const nn::OptimizerOptions& o) {
  const Tensor &m = at.start.at(parameter.moments[0]), &v = at.start.at(parameter.moments[1]);
  const Tensor m_new = at.variants.candidate.read(parameter.moments[0]),
               v_new = at.variants.candidate.read(parameter.moments[1]);
  MomentSums sums;
  for_pieces(m.elements(), [&](Piece piece) {
    const auto a = to_doubles(m, piece), b = to_doubles(m_new, piece), c = to_doubles(v, piece),
               d = to_doubles(v_new, piece);
    for (size_t i = 0; i < a.size(); ++i) add_moment(sums, a[i], b[i], c[i], d[i], o);
  });
  const double unit = sums.size > 0 ? std::sqrt(sums.size) : 1.0;
  const double error =
      std::isfinite(sums.error) ? std::sqrt(sums.error) : std::numeric_limits<double>::infinity();
  const double limit = kUpdateRoundings * unit_roundoff(m_new.type().dtype) * std::sqrt(sums.limit);
  return {.tensor = parameter.name + ": second moment",
          .step = at.step,
          .error = error / unit,
          .limit = limit / unit};
}

bool is_kept_on_overflow(StateRole role) {
  return role == StateRole::kParameter || role == StateRole::kOptimizer ||
         role == StateRole::kStatistic;
}

bool all_zero(const Tensor& tensor) {
  bool zero = true;
  for_pieces(tensor.elements(), [&](Piece piece) {
    for (double v : to_doubles(tensor, piece)) zero = zero && v == 0;
  });
  return zero;
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
  bool same = true;
  for_pieces(a.elements(), [&](Piece piece) {
    const auto x = to_doubles(a, piece), y = to_doubles(b, piece);
    for (size_t i = 0; i < x.size(); ++i)
      same = same && (x[i] == y[i] || (std::isnan(x[i]) && std::isnan(y[i])));
  });
  return same;
}

bool all_finite(const Tensor& tensor) {
  bool finite = true;
  for_pieces(tensor.elements(), [&](Piece piece) {
    for (double v : to_doubles(tensor, piece)) finite = finite && std::isfinite(v);
  });
  return finite;
}

// The scalars of a loss scale, which an overflow changes.
StateSnapshot scalers_of(const Variant& variant) {
  StateSnapshot scalers;
  for (const StateEntry& entry : variant.entries())
    if (entry.role == StateRole::kScaler) scalers.emplace(entry.name, variant.read(entry.name));
  return scalers;
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
  if (optimizer.kind != nn::OptimizerKind::kAdamW) return errors;
  for (const Parameter& parameter : parameters_of(at.variants.reference, optimizer))
    errors.push_back(moment_error(at, parameter, optimizer));
  return errors;
}

std::vector<GuardFailure> flag_failures(const GuardedStep& at) {
  std::vector<GuardFailure> failures;
  for (const StateEntry& entry : at.variants.candidate.entries()) {
    if (entry.role != StateRole::kScaler || at.start.count(entry.name) == 0) continue;
    const Tensor value = at.variants.candidate.read(entry.name);
    const Tensor expected = at.variants.reference.read(entry.name);
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

std::vector<GuardFailure> scale_failures(const GuardedStep& at) {
  std::vector<GuardFailure> failures;
  Variant& candidate = at.variants.candidate;
  restore(candidate, at.start);
  const StateSnapshot scalers = scalers_of(candidate);
  if (!candidate.overflow(at.batch, at.step)) return failures;
  const double scale = candidate.read(std::string(nn::kLossScale)).at(0);
  const bool skipped = scale < nn::kMostLossScale;
  for (const StateEntry& entry : candidate.entries()) {
    if (!is_kept_on_overflow(entry.role) || at.start.count(entry.name) == 0) continue;
    const Tensor after = candidate.read(entry.name);
    // Where all that matters is kept in f32 the gradient may have survived.
    if (!skipped && all_finite(after)) continue;
    if (!same_values(after, at.start.at(entry.name)))
      failures.push_back({GuardTest::kOverflow, entry.name, at.step, 1, 0});
  }
  for (const auto& [name, value] : scalers) candidate.write(name, value);
  return failures;
}

}  // namespace ridge
