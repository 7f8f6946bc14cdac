// The process in which a variant of a model runs (worker_pipe.h):
//
//   {"open": "RECIPE TOML", "model": "m.onnx",     {"facts": {...}}
//    "samples": "samples.npz", "folder": "/x",
//    "role": "session"}
//   {"run": 20}                                    {"block": {...}, "runs": [0.011, 0.012]}
//   {"outputs": "outputs.npz", "count": 8}         {"seconds": 0.21}
//                                                  {"error": "what is wrong; the fix"}
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "ridge/tune/onnx/model_variant.h"
#include "ridge/tune/worker_pipe.h"

namespace ridge {

/// The worker's side.
void serve_model(std::istream& in, std::ostream& out);

/// A model with its data, for workers.
struct ModelJob {
  std::string model;     ///< A path.
  std::string samples;   ///< The path of a file of write_samples().
  std::string folder{};  ///< It has the files that recipes name.
  std::vector<DataSpec> inputs{}, outputs{};
};

/// The other side. All members throw as WorkerPipe does.
class ModelWorker {
 public:
  ModelWorker(const WorkerOptions& options,
              const ModelJob& job,
              const std::string& recipe,
              ModelRole role = ModelRole::kSession);

  const SessionFacts& facts() const { return facts_; }
  /// Seconds of single runs are added to `seconds`.
  Block run(int64_t runs, std::vector<double>& seconds);
  /// The outputs for the first `count` samples, by way of the file at `path`; `seconds` is what
  /// they took.
  SampleOutputs outputs(size_t count, const std::string& path, double* seconds = nullptr);
  void work_until(int64_t until_ns) { pipe_.work_until(until_ns); }
  bool is_running() const { return pipe_.is_running(); }
  void end() { pipe_.end(); }

 private:
  std::vector<DataSpec> outputs_;
  WorkerPipe pipe_;
  SessionFacts facts_;
};

}  // namespace ridge
