// A trained model that runs: inputs by name in, outputs by name out.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"
#include "ridge/infer/compile_choices.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/pick_counts.h"

namespace ridge {

class Program;
class ProgramCache;
struct Plan;

struct ProgramLimits {
  /// Bindings (sizes of named dimensions) that are kept compiled: those used last.
  size_t bindings = 16;
  /// Threads that run one binding at once, each in memory of its own; others wait. 0:
  /// num_threads().
  size_t programs = 0;
  /// Kernels that no pick is kept of are timed when a binding is compiled, and their picks kept for
  /// later sessions on this machine with as many threads. Off: nothing is timed, and picks that are
  /// kept are used. Neither changes a result on the CPU. The setting `tune` off: neither is done.
  bool tune = false;
  /// Those of a recipe, in place of kept picks and `tune`.
  std::optional<CompileChoices> choices = {};
};

/// A tensor in memory of the caller, row-major and without gaps.
struct InputTensor {
  TensorType type;
  const void* data = nullptr;
};
using NamedInputs = std::map<std::string, InputTensor>;

/// Any thread may call any function at any time.
class ModelSession {
 public:
  /// UserError where the state lacks what the model reads.
  explicit ModelSession(LoadedModel model, const ProgramLimits& limits = {});
  /// No thread runs it any more.
  ~ModelSession();
  ModelSession(ModelSession&&) noexcept;

  /// The tensors that run() takes and returns.
  const std::vector<DataSpec>& inputs() const { return inputs_; }
  const std::vector<DataSpec>& outputs() const { return outputs_; }
  const LoadedModel& model() const { return model_; }

  /// The outputs for one tensor an input. Their shapes give the named dimensions sizes; for new
  /// ones it compiles, which bind() does beforehand. UserError that says what the model wants when
  /// a name, a dtype or a shape is not right; or for wrong data (an index out of range), with the
  /// site. After any error the next call is as any other.
  NamedTensors run(const NamedInputs& inputs);
  NamedTensors run(const NamedTensors& inputs);

  /// Compiles for these sizes, where that was not done yet, and takes the memory; returns the plan.
  /// UserError when a dimension is missing, unknown or out of range.
  std::shared_ptr<const Plan> bind(const Binding& binding);

  /// Calls `body` with a program of these sizes, as bind() makes it, that nobody else uses
  /// meanwhile.
  void inspect(const Binding& binding, FunctionRef<void(const Program&)> body);

  /// How the kernels of what was compiled so far were picked.
  PickCounts picks() const;

 private:
  LoadedModel model_;
  std::vector<DataSpec> inputs_, outputs_;
  std::unique_ptr<ProgramCache> programs_;
};

}  // namespace ridge
