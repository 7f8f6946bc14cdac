// The lines of a report about a variant of a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/engine/open_config.h"

namespace ridge {

/// The texts of a report about the configuration, which runs on `device`.
void describe_config(const OptimizeRequest& request,
                     const std::string& device,
                     OptimizeSummary& summary);

/// The configuration, its memory, and its speed where a step takes `step_seconds`.
VariantSpeed speed_of(const OpenConfig& variant, double step_seconds = 0);

/// One step, traced; without launches where that fails. Tracing takes a little time and memory:
/// after what is claimed was measured.
StepTimeline timeline_of(OpenConfig& variant, double step_seconds);

/// compare() with the energy of both, and both with all that is known of them in `summary`.
TrialResult prove_configs(OpenConfig& before,
                          OpenConfig& after,
                          const TrialOptions& options,
                          OptimizeSummary& summary);

/// The plan that a limit of memory led to, in words; `unlimited_bytes` were planned without the
/// limit, where that is known.
std::string text_of_limit(const VariantFacts& facts, std::optional<int64_t> unlimited_bytes = {});

/// The memory of the variant beside a limit, as the loop tells it.
std::string limit_message(const OpenConfig& variant, int64_t limit_bytes, int64_t unlimited_bytes);

inline double in_mebibytes(int64_t bytes) { return static_cast<double>(bytes) * 0x1p-20; }

}  // namespace ridge
