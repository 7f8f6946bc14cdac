// The changes of a model's session that the loop may try, in their order. Here is only said what
// could be tried; what it gains is measured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/semantic_class.h"
#include "ridge/compress/form.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/tune/onnx/model_variant.h"

namespace ridge {

/// The best recipe so far and the machine: proposals depend on both.
struct ModelSituation {
  ModelRecipe recipe;
  SessionFacts facts;       ///< Facts of the best so far.
  double step_seconds = 0;  ///< Seconds of a run of it.
  bool is_throughput = false;
  bool has_rows = false;  ///< A run may take several rows.
  bool has_data = false;  ///< The samples are the user's.
  /// The names of the quantized models that could run in the model's place, by method.
  std::map<compress::QuantizeMethod, std::string> quantized = {};
  int cpus = 1, cores = 1;  ///< CPUs that the process may use, and cores that they belong to.
  int threads = 1;          ///< Threads without a recipe.
  bool pins = false;        ///< Threads are pinned without a recipe.
  bool may_set_threads = true, may_pin = true;  ///< The user's environment says nothing of them.
  bool may_time = true;                         ///< The setting `tune` is on.
  std::string huge_pages;  ///< "[always] madvise never", as the system says; empty: it has none.
};
/// The situation on this machine; it looks beneath `root`, which is "/" outside tests.
ModelSituation machine_situation(const std::string& root = "/");

/// One change to try, or why a technique has nothing to try.
struct ModelProposal {
  std::string technique;
  std::string text{};        ///< "threads 2 -> 1"; empty where nothing is to be tried.
  std::string hypothesis{};  ///< Why it would help; where nothing is to be tried, why not.
  SemanticClass semantic_class = SemanticClass::kBitIdentical;
  std::function<void(ModelRecipe&)> apply{};
  bool sets_kernels = false;  ///< The kernels that it leads to are known once it has run.
};

/// The names of all techniques.
std::vector<std::string> model_techniques();
/// Returns proposals in the order in which they are to be tried; each technique has at least one.
std::vector<ModelProposal> model_proposals(const ModelSituation& situation);

}  // namespace ridge
