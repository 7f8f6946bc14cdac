// The lines of a report about a variant of a configuration.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "ridge/tune/engine/config_target.h"
#include "ridge/tune/engine/open_config.h"
#include "ridge/tune/prediction.h"

namespace ridge {

/// The texts of a report about the configuration, which runs on `device`.
void describe_config(const OptimizeRequest& request,
                     const std::string& device,
                     OptimizeSummary& summary);

/// Fills in the configuration, its memory and the samples of a step.
void describe_variant(const OpenConfig& variant, VariantSpeed& speed);

/// Reports what a step of the configuration as it is costs, with a trace of one. `queue_seconds` is
/// what the host takes to queue it for a device; nothing: there is none.
void report_baseline(const LoopView& loop,
                     OpenConfig& variant,
                     const StepCosts& costs,
                     std::optional<double> queue_seconds);

/// compare() with the energy of both; `summary` gets all that is known of them but the times.
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
