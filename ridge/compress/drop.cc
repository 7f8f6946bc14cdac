#include "ridge/compress/drop.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ridge/base/error.h"
#include "ridge/base/utf8.h"

namespace ridge::compress {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The power of an error, and of the signal.
struct Power {
  double error = 0, signal = 0;

  double ratio() const {
    if (error == 0) return 0;
    return signal > 0 ? error / signal : kInfinity;
  }
};

void add(const Tensor& reference, const Tensor& candidate, Power& power) {
  check_internal(reference.type().shape == candidate.type().shape,
                 "[error_power] {} instead of {}",
                 to_string(candidate.type()),
                 to_string(reference.type()));
  if (!is_float(reference.type().dtype)) {
    for (int64_t i = 0; i < reference.elements(); ++i)
      power.error += reference.at(i) == candidate.at(i) ? 0 : 1;
    power.signal += static_cast<double>(reference.elements());
    return;
  }
  for (int64_t i = 0; i < reference.elements(); ++i) {
    const double wanted = reference.at(i), off = candidate.at(i) - wanted;
    if (!std::isfinite(wanted)) continue;
    power.signal += wanted * wanted;
    power.error += std::isfinite(off) ? off * off : kInfinity;
  }
}

}  // namespace

double error_power(const SampleOutputs& reference,
                   const SampleOutputs& candidate,
                   std::string* output) {
  double largest = 0;
  for (const auto& [name, first] : reference.at(0)) {
    Power power;
    for (size_t s = 0; s < reference.size(); ++s)
      add(reference[s].at(name), candidate.at(s).at(name), power);
    if (output != nullptr && (output->empty() || power.ratio() > largest)) *output = name;
    largest = std::max(largest, power.ratio());
  }
  return largest;
}

Score score_of(const SampleOutputs& outputs,
               const std::string& name,
               const std::vector<int64_t>& labels) {
  Score score;
  for (size_t s = 0; s < outputs.size(); ++s) {
    const Tensor& row = outputs[s].at(name);
    int64_t best = 0;
    double largest = row.at(0), sum = 0;
    for (int64_t i = 1; i < row.elements(); ++i)
      if (row.at(i) > largest) largest = row.at(best = i);
    for (int64_t i = 0; i < row.elements(); ++i) sum += std::exp(row.at(i) - largest);
    score.accuracy += best == labels.at(s) ? 1 : 0;
    score.loss += std::log(sum) + largest - row.at(labels[s]);
  }
  score.accuracy /= static_cast<double>(outputs.size());
  score.loss /= static_cast<double>(outputs.size());
  return score;
}

std::string scored_output(const NamedTensors& outputs) {
  std::vector<std::string> found;
  for (const auto& [name, tensor] : outputs) {
    const TensorType& type = tensor.type();
    if (is_float(type.dtype) && type.rank() == 2 && type.shape[0] == 1) found.push_back(name);
  }
  if (found.size() != 1)
    throw UserError(
        fmt::format("[quantize] labels need one output of a row of classes for each sample; got {}",
                    found.size()),
        "leave out --eval: the error of outputs needs no labels");
  return found[0];
}

}  // namespace ridge::compress
