// The guard over two configurations that differ by a change under trial.
#pragma once

#include <string>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/config/config.h"
#include "ridge/data/dataset.h"

namespace ridge {

struct GuardRequest {
  std::string reference, candidate;  ///< TOML, as a worker reads it.
  SemanticClass semantic_class = SemanticClass::kReassociation;
  /// Steps of all programs together, as far as a guard that means something goes with fewer.
  int64_t most_steps = 1000;
};

/// What came of it, as the ledger and the report have it.
struct GuardAnswer {
  bool passed = false;
  bool can_tell = true;   ///< Else it neither passed nor failed: more data could.
  std::string text = {};  ///< One line.
  double margin = 0;      ///< Of paired runs; 0 where there were none.
  double detectable = 0;  ///< A loss that they would have shown with a probability of 80 %.
  double power = 0;       ///< Probability that a candidate without any loss passes them.
  /// Modules that, kept in f32, let the candidate pass; empty where that mends nothing.
  std::vector<std::string> f32_modules = {};

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("passed", self.passed);
    visit("can_tell", self.can_tell);
    visit("text", self.text);
    visit("margin", self.margin);
    visit("detectable", self.detectable);
    visit("power", self.power);
    visit("f32_modules", self.f32_modules);
  }
};

/// The configuration in `text`, its settings those of this process from now on; it writes nothing.
TrainConfig read_variant(const std::string& text);

/// Of a whole run over `samples` samples an epoch.
int64_t total_steps(const TrainConfig& config, const data::Dataset& data);

/// Runs both on real batches, in this process. UserError as train().
GuardAnswer guard_configs(const GuardRequest& request);

}  // namespace ridge
