// The programs of a model, by binding: made when they are first asked for, and forgotten when they
// were not for long.
#pragma once

#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>

#include "ridge/base/function_ref.h"
#include "ridge/graph/model_source.h"
#include "ridge/infer/compile_choices.h"
#include "ridge/infer/pick_counts.h"
#include "ridge/run/program.h"

namespace ridge {

/// Any thread may call any function at any time.
class ProgramCache {
 public:
  struct Limits {
    size_t bindings = 1;  ///< Bindings that are kept, those used last.
    size_t programs = 1;  ///< Programs of one binding, each with memory of its own.
  };
  /// `source` and `state` must outlive it; limits are at least 1. `tune`, `choices`: see
  /// ProgramLimits.
  ProgramCache(const ModelSource& source,
               State& state,
               Limits limits,
               bool tune = false,
               std::optional<CompileChoices> choices = {});
  /// Nobody uses it any more.
  ~ProgramCache();

  /// Calls `body` with a program of the binding that no other thread uses meanwhile. A binding is
  /// compiled once, by the first thread; another one that finds its programs in use makes one more
  /// of that compilation, or waits where there are as many as there may be. What `body` throws goes
  /// on, and that program is gone; after any other failure too the next call starts afresh.
  void use(const Binding& binding, FunctionRef<void(Program&)> body);

  PickCounts picks();

 private:
  struct Bound;
  std::shared_ptr<Bound> find(const Binding& binding);
  std::unique_ptr<Program> take(const std::shared_ptr<Bound>& bound);
  std::unique_ptr<Program> make(Bound& bound);
  std::shared_ptr<const CompiledProgram> compile(const Binding& binding);
  void finish_making(const std::shared_ptr<Bound>& bound, bool is_made);
  void give_back(Bound& bound, std::unique_ptr<Program> program);

  const ModelSource& source_;
  State& state_;
  const Limits limits_;
  const bool tune_;
  const std::optional<CompileChoices> choices_;

  std::mutex mutex_;                 ///< It guards all below, and what is in it but compilations.
  std::condition_variable changed_;  ///< A program was given back, or is no longer being made.
  std::list<std::shared_ptr<Bound>> bound_;  ///< The one used last is first.
  PickCounts picks_;
};

}  // namespace ridge
