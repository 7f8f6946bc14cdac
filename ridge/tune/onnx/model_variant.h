// A session of a model with a recipe over it, ready to be timed, in the process that runs it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridge/base/named_enum.h"
#include "ridge/infer/callers.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/infer/model_session.h"
#include "ridge/infer/samples/model_samples.h"
#include "ridge/proof/trial.h"

namespace ridge {

/// The form in which a model is run.
enum class ModelRole : uint8_t {
  kSession,  ///< The session that users have.
  kOracle,   ///< In f64, its batch norms as they are written, without passes.
  kControl,  ///< The same with the operands of contractions rounded to bf16 (wide_source.h).
};
constexpr std::string_view names_of(ModelRole) { return "session|oracle|control"; }

struct SessionFacts {
  std::string plan_hash = {};
  int64_t planned_bytes = 0, state_bytes = 0, arena_bytes = 0;
  int64_t peak_bytes = 0;    ///< Growth of resident memory until the first result; 0: not known.
  double first_seconds = 0;  ///< From the file to the first result.
  std::vector<std::string> kernels = {};  ///< NamedKernels as "HASH NAME".
  std::vector<std::string> passes = {};   ///< The optional passes that changed the graph.
  /// Names of kernels in use in whose place another one could serve, of nodes whose operands may
  /// lie packed: a kernel that is timed alone tells little about these.
  std::vector<std::string> replaceable = {};
  bool has_alternatives = false;  ///< Kernels with the same bits could be picked by time.
  bool has_other_bits = false;    ///< And kernels with other bits.
  bool has_bf16 = false;  ///< The processor multiplies bf16, and the model has products for it.

  /// The list that json_fields.h describes.
  static void fields(auto& self, auto&& visit) {
    visit("plan_hash", self.plan_hash);
    visit("planned_bytes", self.planned_bytes);
    visit("state_bytes", self.state_bytes);
    visit("arena_bytes", self.arena_bytes);
    visit("peak_bytes", self.peak_bytes);
    visit("first_seconds", self.first_seconds);
    visit("kernels", self.kernels);
    visit("passes", self.passes);
    visit("replaceable", self.replaceable);
    visit("has_alternatives", self.has_alternatives);
    visit("has_other_bits", self.has_other_bits);
    visit("has_bf16", self.has_bf16);
  }
};

class ModelVariant {
 public:
  /// Loads the model by `open`, runs it once, and has its facts. Settings of the recipe are in
  /// force already. UserError where it cannot be run.
  ModelVariant(const std::function<LoadedModel()>& open,
               const ModelRecipe& recipe,
               ModelSamples samples);

  const SessionFacts& facts() const { return facts_; }
  /// So many runs of each instance, all at the same time. `seconds` gets those of each run.
  Block run(int64_t runs, std::vector<double>& seconds);
  /// The outputs for the first `count` samples, by runs of the recipe's batch.
  SampleOutputs outputs(size_t count);

 private:
  void read_facts(const Program& program);

  ModelSamples samples_;
  int64_t batch_;
  Callers callers_;
  std::unique_ptr<ModelSession> session_;
  std::vector<NamedTensors> data_;  ///< By instance.
  SessionFacts facts_;
};

/// The model at `path` in that role.
LoadedModel load_for(ModelRole role, const std::string& path);
/// The recipe of a role: the session's own, or no pass for the others.
ModelRecipe recipe_for(ModelRole role, const ModelRecipe& recipe);

}  // namespace ridge
