// Errors at the outputs of a model, of which one site after the other multiplies bytes.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "ridge/compress/switches.h"
#include "ridge/infer/samples/model_samples.h"

namespace ridge::compress {

/// The error power (drop.h) on `samples` where site i of `sites` alone multiplies bytes, for each
/// i. `reference` has the outputs of the model as it is. `on_site` is called before each and may
/// throw to stop.
std::vector<double> site_errors(const SwitchedModel& switched,
                                size_t sites,
                                const std::vector<NamedTensors>& samples,
                                const SampleOutputs& reference,
                                const std::function<void(size_t)>& on_site);

}  // namespace ridge::compress
