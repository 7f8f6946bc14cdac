// The measurements of `ridge bench`.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/cli/bench/bench_report.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/tune/onnx/latency_runner.h"
#include "ridge/tune/onnx/runtime_peer.h"

namespace ridge {

struct BenchRequest {
  std::string model;                  ///< Its path.
  std::function<LoadedModel()> open;  ///< Loads it anew.
  std::vector<int64_t> batches = {};  ///< Empty: that of the model where it is fixed, else 1.
  std::vector<int64_t> threads = {};  ///< Empty: as many as now.
  Binding dims = {};                  ///< Sizes of named dimensions other than that of samples.
  double seconds = 5;                 ///< The runs of each result take so long.
  bool tune = false;  ///< Kernels are picked by time before anything is measured, and kept.
  /// The recipe of all sessions; its settings are in force, and what it says of batch and sizes
  /// holds where the request says nothing.
  std::optional<ModelRecipe> recipe = {};
  std::optional<PeerRuntime> against = {};  ///< Nothing: Ridge runs alone.
  std::string python = {};                  ///< The Python that has it.
  std::string supervisor = "/proc/self/exe";
  Clock now = now_ns;
};

/// Measures each pair of a batch and a number of threads: a fresh session for each. UserError,
/// before anything is measured, for sizes that do not suit or are missing. The number of threads
/// stays as it was set last.
BenchReport bench_model(const BenchRequest& request);

/// The largest difference of two outputs over the largest magnitude of that output, over all of
/// them; an infinity where one is NaN and the other is not. UserError where shapes differ.
double output_difference(const std::vector<Tensor>& got, const std::vector<Tensor>& expected);

}  // namespace ridge
