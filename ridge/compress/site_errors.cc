#include "ridge/compress/site_errors.h"

#include "ridge/compress/calibration.h"
#include "ridge/compress/drop.h"

namespace ridge::compress {

std::vector<double> site_errors(const SwitchedModel& switched,
                                size_t sites,
                                const std::vector<NamedTensors>& samples,
                                const SampleOutputs& reference,
                                const std::function<void(size_t)>& on_site) {
  std::vector<NamedTensors> inputs = samples;
  const Tensor all_off({DType::kBool, {static_cast<int64_t>(sites)}});
  for (NamedTensors& sample : inputs) sample.emplace(switched.input, all_off);
  SampleRunner runner(switched.model, inputs.at(0));
  std::vector<double> errors;
  for (size_t i = 0; i < sites; ++i) {
    on_site(i);
    SampleOutputs outputs;
    for (NamedTensors& sample : inputs) {
      Tensor& switches = sample.at(switched.input);
      switches.set(static_cast<int64_t>(i), 1);
      outputs.push_back(runner.run(sample));
      switches.set(static_cast<int64_t>(i), 0);
    }
    errors.push_back(error_power(reference, outputs));
  }
  return errors;
}

}  // namespace ridge::compress
