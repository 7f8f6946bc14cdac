// The lines of a report about a model.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "ridge/tune/onnx/open_model.h"

namespace ridge {

/// Said where nobody asks for another runtime.
inline constexpr std::string_view kNoRival = "ONNX Runtime was not measured";

/// The texts of a report about the model.
void describe_model(const ModelRequest& request, OptimizeSummary& summary);
/// Memory, start-up, and the median and 99th percentile of `runs`.
VariantSpeed speed_of(const OpenModel& model, const std::vector<double>& runs);

std::string baseline_text(const OpenModel& model, double seconds);
/// Who of both is faster; `trial` is of the rival before the session as it is.
std::string rival_text(const std::string& name, const OpenModel& rival, const TrialResult& trial);
/// The advice to use the rival, after that trial and after a lost proof against it.
std::string advice_of(const std::string& name, const TrialResult& trial);
std::string advice_after_proof(const std::string& name, const TrialResult& trial);

/// compare() with the energy of both; `summary` gets all that is known of them but the times of
/// steps.
TrialResult prove_models(OpenModel& before,
                         OpenModel& after,
                         const TrialOptions& options,
                         OptimizeSummary& summary);

}  // namespace ridge
