// How far a quantized model is from the model: by its outputs, and by what they say of labels.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ridge/infer/samples/model_samples.h"

namespace ridge::compress {

/// The power of the error over that of the signal: the sum of (candidate - reference)^2 over that
/// of reference^2, of all samples of the output where it is largest; 1 % is a ratio of 20 dB.
/// Elements of integers count as wrong or right: the share of those that differ. Infinite where the
/// candidate is not finite and the reference is. `output` gets the name of that output, where it is
/// given.
double error_power(const SampleOutputs& reference,
                   const SampleOutputs& candidate,
                   std::string* output = nullptr);

/// How well outputs of (1, classes) for each sample suit its label.
struct Score {
  double accuracy = 0;  ///< The share of samples whose largest element is that of the label.
  double loss = 0;      ///< The mean cross-entropy of softmax, in nats.
};

/// The score of the output `name`, by labels that are among its classes.
Score score_of(const SampleOutputs& outputs,
               const std::string& name,
               const std::vector<int64_t>& labels);

/// The output that labels are of: the only one of floats with one row of classes a sample.
/// UserError where there is none, or there are several.
std::string scored_output(const NamedTensors& outputs);

}  // namespace ridge::compress
