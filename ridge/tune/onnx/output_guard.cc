#include "ridge/tune/onnx/output_guard.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/unit_roundoff.h"
#include "ridge/base/utf8.h"
#include "ridge/compress/drop.h"
#include "ridge/compress/quantize_model.h"

namespace ridge {
namespace {

// The limit is that of the guard of trainings (tune/engine/guard/judgement.cc): orders of summation
// differ at most as a sum that is rounded once from a chain of 256 products, and roundings add up
// as a random walk.
constexpr double kReassociation = 16;
// The control rounds what the candidate rounds; where a rounding tips over, they differ by as much
// as either is off.
constexpr double kPrecision = 3, kFarthest = 4;
// The slope may be off by the first, by so many times what the control's is off, and by so many
// deviations of an error that has no bias.
constexpr double kSlope = 0.005, kSlopeOfControl = 3, kDeviations = 4;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The largest magnitude and the sums of one output of one sample.
struct Sums {
  double ff = 0;                                     ///< F F
  double fc = 0;                                     ///< F C
  double fk = 0;                                     ///< F K
  double reference = 0, candidate = 0, control = 0;  ///< Squared distances to F.
  double farthest = 0, farthest_control = 0;         ///< Largest distances of an element to F.
  double elements = 0;
  double largest = 0;
};

struct Errors {
  double reference = 0, candidate = 0, control = 0;
};

double relative(double squared_error, double squared_size) {
  if (squared_error == 0) return 0;
  return squared_size > 0 ? std::sqrt(squared_error / squared_size) : kInfinity;
}

bool is_same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

Sums sums_of(const Tensor& f, const Tensor& r, const Tensor& c, const Tensor* k) {
  Sums sums;
  for (int64_t i = 0; i < f.elements(); ++i) {
    const double oracle = f.at(i), reference = r.at(i), candidate = c.at(i);
    // Numbers beyond f32 are infinities in the session as it is, too.
    if (!std::isfinite(oracle) || !std::isfinite(reference)) {
      if (!is_same(candidate, reference)) sums.candidate = kInfinity;
      continue;
    }
    const double error = std::abs(candidate - oracle);
    sums.ff += oracle * oracle;
    sums.fc += oracle * candidate;
    sums.reference += (reference - oracle) * (reference - oracle);
    sums.candidate += std::isfinite(error) ? error * error : kInfinity;
    sums.farthest = std::max(sums.farthest, std::isfinite(error) ? error : kInfinity);
    sums.largest = std::max(sums.largest, std::abs(oracle));
    ++sums.elements;
    if (k == nullptr) continue;
    const double off = std::abs(k->at(i) - oracle);
    sums.fk += oracle * k->at(i);
    sums.control += off * off;
    sums.farthest_control = std::max(sums.farthest_control, off);
  }
  return sums;
}

int64_t differing(const Tensor& a, const Tensor& b) {
  int64_t count = 0;
  for (int64_t i = 0; i < a.elements(); ++i) count += is_same(a.at(i), b.at(i)) ? 0 : 1;
  return count;
}

GuardOutcome failed(std::string text) { return {.passed = false, .text = std::move(text)}; }

const Tensor& output_of(const NamedTensors& outputs, const std::string& name) {
  const auto found = outputs.find(name);
  check(found != outputs.end(), "output '{}' is missing", shown_text(name));
  return found->second;
}

class OutputJudge {
 public:
  OutputJudge(const JudgedOutputs& outputs, SemanticClass semantic_class, std::string samples)
      : outputs_(outputs),
        rounds_(semantic_class >= SemanticClass::kPrecision),
        samples_(std::move(samples)) {
    check_internal(!outputs.oracle.empty() && (!rounds_ || outputs.control != nullptr),
                   "[judge_outputs] nothing to compare with");
  }

  GuardOutcome judge() {
    for (const auto& [name, first] : outputs_.oracle.front()) {
      const std::string problem =
          is_float(first.type().dtype) ? judge_floats(name) : judge_integers(name);
      if (!problem.empty()) return failed(problem);
    }
    return {.passed = true,
            .text = fmt::format("outputs of {}: off f64 by {:.1e} at most, the plain session by "
                                "{:.1e}, limit {:.1e}",
                                samples_,
                                told_.candidate,
                                told_.reference,
                                limit_)};
  }

 private:
  std::string judge_integers(const std::string& name) const {
    for (size_t s = 0; s < outputs_.oracle.size(); ++s) {
      const Tensor& oracle = output_of(outputs_.oracle[s], name);
      const Tensor& candidate = output_of(outputs_.candidate[s], name);
      if (candidate.type() != oracle.type()) return type_text(name, candidate, oracle);
      const int64_t own = differing(output_of(outputs_.reference[s], name), oracle);
      const int64_t now = differing(candidate, oracle);
      if (now > own)
        return fmt::format("{} of {} elements of output '{}' of sample {} are others than in f64",
                           now,
                           oracle.elements(),
                           shown_text(name),
                           s);
    }
    return {};
  }

  std::string judge_floats(const std::string& name) {
    std::vector<Sums> all;
    Sums total;
    for (size_t s = 0; s < outputs_.oracle.size(); ++s) {
      const Tensor& oracle = output_of(outputs_.oracle[s], name);
      const Tensor& candidate = output_of(outputs_.candidate[s], name);
      if (candidate.type().shape != oracle.type().shape) return type_text(name, candidate, oracle);
      dtype_ = output_of(outputs_.reference[s], name).type().dtype;
      const Sums sums = sums_of(oracle,
                                output_of(outputs_.reference[s], name),
                                candidate,
                                rounds_ ? &output_of((*outputs_.control)[s], name) : nullptr);
      total.ff += sums.ff;
      total.fc += sums.fc;
      total.fk += sums.fk;
      total.elements += sums.elements;
      total.reference += sums.reference;
      total.candidate += sums.candidate;
      total.control += sums.control;
      total.farthest_control = std::max(total.farthest_control, sums.farthest_control);
      all.push_back(sums);
    }
    for (size_t s = 0; s < all.size(); ++s)
      if (std::string problem = judge_sample(name, s, all[s], total); !problem.empty())
        return problem;
    return rounds_ ? judge_slope(name, total) : std::string();
  }

  // The scatter of one sample's error is no reason to refuse it: that of all counts, too.
  std::string judge_sample(const std::string& name, size_t s, const Sums& sums, const Sums& total) {
    const double own = std::max({relative(sums.reference, sums.ff),
                                 relative(total.reference, total.ff),
                                 unit_roundoff(dtype_)});
    const double control =
        std::max(relative(sums.control, sums.ff), relative(total.control, total.ff));
    const double limit = kReassociation * own + (rounds_ ? kPrecision * control : 0);
    const double error = relative(sums.candidate, sums.ff);
    if (error > told_.candidate) told_.candidate = error;
    told_.reference = std::max(told_.reference, relative(sums.reference, sums.ff));
    limit_ = std::max(limit_, limit);
    if (!(error <= limit))
      return fmt::format(
          "output '{}' of sample {} is off f64 by {:.2g}, the plain session by "
          "{:.2g}, limit {:.2g}",
          shown_text(name),
          s,
          error,
          relative(sums.reference, sums.ff),
          limit);
    const double reach = kFarthest * total.farthest_control + kReassociation * own * sums.largest;
    if (rounds_ && !(sums.farthest <= reach))
      return fmt::format(
          "an element of output '{}' of sample {} is off f64 by {:.2g}, limit {:.2g}",
          shown_text(name),
          s,
          sums.farthest,
          reach);
    return {};
  }

  std::string judge_slope(const std::string& name, const Sums& total) const {
    if (!(total.ff > 0)) return {};
    const double slope = total.fc / total.ff, control = total.fk / total.ff;
    const double noise = relative(total.candidate, total.ff) / std::sqrt(total.elements);
    const double limit = kSlope + kSlopeOfControl * std::abs(control - 1) + kDeviations * noise;
    if (std::abs(slope - 1) <= limit) return {};
    return fmt::format("output '{}' is {:.4g} times that of f64, expected 1 +- {:.2g}",
                       shown_text(name),
                       slope,
                       limit);
  }

  static std::string type_text(const std::string& name,
                               const Tensor& candidate,
                               const Tensor& oracle) {
    return fmt::format("output '{}' is {}, expected {}",
                       shown_text(name),
                       to_string(candidate.type()),
                       to_string(oracle.type()));
  }

  const JudgedOutputs& outputs_;
  bool rounds_;
  std::string samples_;
  DType dtype_ = DType::kF32;
  Errors told_;
  double limit_ = 0;
};

}  // namespace

GuardOutcome judge_outputs(const JudgedOutputs& outputs,
                           SemanticClass semantic_class,
                           const std::string& samples) {
  return OutputJudge(outputs, semantic_class, samples).judge();
}

GuardOutcome judge_quantized(const SampleOutputs& oracle,
                             const SampleOutputs& candidate,
                             const std::string& samples) {
  constexpr double kLimit = compress::QuantizeOptions::kDefaultDrop;
  std::string output;
  const double drop = 100 * compress::error_power(oracle, candidate, &output);
  return {.passed = drop <= kLimit,
          .text = fmt::format("output '{}' of {} is off f64 by {:.2g} % of its power, limit {} %",
                              shown_text(output),
                              samples,
                              drop,
                              kLimit)};
}

GuardOutcome compare_outputs(const SampleOutputs& candidate, const SampleOutputs& expected) {
  for (size_t s = 0; s < expected.size(); ++s)
    for (const auto& [name, tensor] : expected[s])
      if (!output_of(candidate.at(s), name).same_bits(tensor))
        return failed(fmt::format("output '{}' of sample {} has other bits", shown_text(name), s));
  return {.passed = true,
          .text = fmt::format("same bits of the outputs of {} samples", expected.size())};
}

}  // namespace ridge
