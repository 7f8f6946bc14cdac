#include "ridge/tune/engine/guard/judgement.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace ridge {
namespace {

using Kind = Compared::Kind;

// Class 1. Orders of summation differ at most as a sum that is rounded once (in double, as `ref`)
// from a chain of 256 products, each rounded (a block of the GEMM): sqrt(256), for roundings add up
// as a random walk. All other roundings are common to both.
constexpr double kReassociation = 16;

// Class 2. The control rounds the parameters and the data, in the main one operand of each product
// forward; the candidate rounds two operands and a result, forward and in the two products
// backward: nine times as many roundings, three times the error as a random walk, and twice that
// for what scatters.
constexpr double kPrecision = 6;

// Of the mini-batch noise: training with an error of this variance is training on 1 % fewer
// samples.
constexpr double kNoiseShare = 0.01;

// A bias does not average out.
constexpr double kSlopeLimit = 0.002;
// Errors of 10 % of the tensor; larger ones are judged as errors.
constexpr double kMostBend = 0.005;
constexpr double kChanceOfFailure = 0.01;
constexpr double kConfidence = 0.95;

double relative(double squared_error, double squared_size) {
  if (squared_error == 0) return 0;
  return squared_size > 0 ? std::sqrt(squared_error / squared_size)
                          : std::numeric_limits<double>::infinity();
}

GroupSums total(const std::vector<GroupSums>& groups) {
  GroupSums sum;
  for (const GroupSums& group : groups) {
    sum.count += group.count;
    sum.ff += group.ff;
    sum.error_r += group.error_r;
    sum.error_c += group.error_c;
    sum.floor += group.floor;
    sum.control += group.control;
    sum.noise += group.noise;
    sum.noise_count += group.noise_count;
  }
  return sum;
}

double noise_variance(const GroupSums& sums) {
  return sums.noise_count > 0 ? sums.noise / static_cast<double>(sums.noise_count) : 0.0;
}

// The squared error that reassociation explains.
double reassociation(const GroupSums& sums) {
  return kReassociation * kReassociation * std::max(sums.error_r, sums.floor);
}

class TensorJudge {
 public:
  TensorJudge(const MeasuredTensor& tensor,
              const JudgementRules& rules,
              std::vector<GuardFailure>& failures)
      : tensor_(tensor), rules_(rules), failures_(failures), sum_(total(tensor.groups)) {}

  GuardRow judge() {
    row_.tensor = tensor_.compared.name;
    row_.error = relative(sum_.error_c, sum_.ff);
    row_.reference_error = relative(sum_.error_r, sum_.ff);
    judge_accuracy();
    judge_noise();
    judge_slope();
    return row_;
  }

 private:
  void fail(GuardTest test, int64_t step, double value, double limit) {
    row_.verdict = GuardVerdict::kFailed;
    failures_.push_back({test, row_.tensor, step, value, limit});
  }

  // The squared error that the class allows a group. A small group's control scatters.
  double allowed(const GroupSums& group) const {
    if (!rules_.loses_precision) return reassociation(group);
    const double share = sum_.ff > 0 ? sum_.control / sum_.ff : 0.0;
    const double control = std::max(group.control, share * group.ff);
    return reassociation(group) + kPrecision * kPrecision * control;
  }

  // An error of the formula shows in each batch. A ReLU that roundoff tips over, and which moves a
  // gradient by far more than roundoff, shows in few.
  bool is_inaccurate(const GroupSums& group) const {
    if (!rules_.loses_precision) return group.least_ratio > kReassociation;
    return !(group.least_error <= relative(allowed(group), group.ff));
  }

  void judge_accuracy() {
    const GroupSums* worst = nullptr;
    double limit = 0;
    for (const GroupSums& group : tensor_.groups) {
      limit += allowed(group);
      if (is_inaccurate(group) && (worst == nullptr || group.least_error > worst->least_error))
        worst = &group;
    }
    row_.error_limit = relative(limit, sum_.ff);
    if (worst == nullptr) return;
    const double group_limit = relative(allowed(*worst), worst->ff);
    const double error =
        rules_.loses_precision ? worst->least_error : relative(worst->error_c, worst->ff);
    fail(GuardTest::kAccuracy, worst->step, error, group_limit);
  }

  void judge_noise() {
    const double variance = noise_variance(sum_);
    if (variance <= 0) return;
    const double n = static_cast<double>(sum_.count);
    row_.noise_share = sum_.error_c / n / variance;
    // A variance from few numbers scatters by sqrt(2 / numbers) of itself.
    const double numbers = static_cast<double>(tensor_.elements * sum_.noise_count);
    const double share = kNoiseShare * (1 + 4 * std::sqrt(2 / numbers));
    const double own = reassociation(sum_) / n / variance;
    // Statistics hardly scatter where a batch has many pixels, and no step is made by them.
    if (tensor_.compared.kind == Kind::kStatistic) return;
    if (row_.noise_share > share + own)
      fail(GuardTest::kNoise, tensor_.groups.front().step, row_.noise_share, share + own);
  }

  void judge_slope() {
    const Slope slope = slope_of(tensor_.groups);
    row_.slope = slope.value;
    row_.slope_error = slope.error;
    const bool is_decisive = rules_.loses_precision;
    // Data of few values, such as the background of images, round to the same side everywhere: a
    // statistic of them is biased, and right for what reads it, which rounds in the same way.
    if (is_decisive && tensor_.compared.kind == Kind::kStatistic) return;
    if (std::isnan(slope.value) || slope.freedom < 2) {
      if (is_decisive && sum_.error_c > 0) leave_open();
      return;
    }
    // What an error takes away (a ReLU that is tipped off) is a part of F, what it adds is not: an
    // error without any bias bends the slope by up to half its relative variance.
    const double bend = sum_.ff > 0 ? 0.5 * sum_.error_c / sum_.ff : 0.0;
    const double away = std::fabs(slope.value - 1);
    const double limit = kSlopeLimit + std::min(bend, kMostBend);
    const double chance = kChanceOfFailure / static_cast<double>(rules_.tests) / 2;
    const double surely = student_quantile(1 - chance, slope.freedom) * slope.error;
    if (!(away <= limit + surely)) {
      fail(GuardTest::kSlope, tensor_.groups.front().step, slope.value, limit + surely);
      return;
    }
    const double likely = student_quantile(0.5 + kConfidence / 2, slope.freedom) * slope.error;
    // In class 1 the accuracy has decided already.
    if (is_decisive && away + likely > limit) leave_open();
  }

  void leave_open() {
    if (row_.verdict == GuardVerdict::kPassed) row_.verdict = GuardVerdict::kCannotTell;
  }

  const MeasuredTensor& tensor_;
  const JudgementRules& rules_;
  std::vector<GuardFailure>& failures_;
  GroupSums sum_;
  GuardRow row_;
};

}  // namespace

GuardRow judge_tensor(const MeasuredTensor& tensor,
                      const JudgementRules& rules,
                      std::vector<GuardFailure>& failures) {
  return TensorJudge(tensor, rules, failures).judge();
}

double excess(const GuardFailure& failure) {
  const double value =
      failure.test == GuardTest::kSlope ? std::fabs(failure.value - 1) : std::fabs(failure.value);
  if (std::isnan(value)) return std::numeric_limits<double>::infinity();
  return failure.limit > 0 ? value / failure.limit : std::numeric_limits<double>::infinity();
}

std::string describe(const GuardFailure& f) {
  const std::string where = fmt::format("{} (step {})", f.tensor, f.step);
  switch (f.test) {
    case GuardTest::kHash:
      return fmt::format("the bits of the state differ after {} steps", f.step);
    case GuardTest::kAccuracy:
      return fmt::format("error {:.3g} of {}, limit {:.3g}", f.value, where, f.limit);
    case GuardTest::kNoise:
      return fmt::format(
          "error of {:.3g} of the mini-batch noise in {}, limit {:.3g}", f.value, where, f.limit);
    case GuardTest::kSlope:
      return fmt::format("slope {:.6g} of {}, expected 1 +- {:.2g}", f.value, where, f.limit);
    case GuardTest::kUpdate:
      return fmt::format(
          "error {:.3g} of {} given equal moments, limit {:.3g}", f.value, where, f.limit);
    case GuardTest::kExact:
      return fmt::format("{} is {:.6g}, expected {:.6g}", where, f.value, f.limit);
    case GuardTest::kOverflow:
      return fmt::format("{} is changed by a step that is not finite", where);
    case GuardTest::kLoss:
      return fmt::format("loss may be worse by {:.3g}, margin {:.3g}", f.value, f.limit);
  }
  return {};
}

}  // namespace ridge
