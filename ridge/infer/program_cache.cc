#include "ridge/infer/program_cache.h"

#include <algorithm>
#include <vector>

#include "ridge/infer/weights.h"
#include "ridge/run/tuning.h"

namespace ridge {

/// The programs of one binding. A thread that uses one keeps this, also when the cache has
/// forgotten it: the last one frees it.
struct ProgramCache::Bound {
  Binding binding;
  std::vector<std::unique_ptr<Program>> idle = {};
  size_t programs = 0;     ///< In use, idle, or being made.
  bool is_making = false;  ///< A thread makes a program, and alone uses the next.
  std::shared_ptr<const CompiledProgram> compiled = nullptr;
};

ProgramCache::ProgramCache(const ModelSource& source,
                           State& state,
                           Limits limits,
                           bool tune,
                           std::optional<CompileChoices> choices)
    : source_(source), state_(state), limits_(limits), tune_(tune), choices_(std::move(choices)) {}

ProgramCache::~ProgramCache() = default;

void ProgramCache::use(const Binding& binding, FunctionRef<void(Program&)> body) {
  const std::shared_ptr<Bound> bound = find(binding);
  std::unique_ptr<Program> program = take(bound);
  try {
    body(*program);
  } catch (...) {
    program.reset();  // what it has queued may use memory of the caller
    give_back(*bound, nullptr);
    throw;
  }
  give_back(*bound, std::move(program));
}

std::shared_ptr<ProgramCache::Bound> ProgramCache::find(const Binding& binding) {
  const std::lock_guard lock(mutex_);
  const auto at = std::find_if(
      bound_.begin(), bound_.end(), [&](const auto& each) { return each->binding == binding; });
  if (at == bound_.end())
    bound_.push_front(std::make_shared<Bound>(Bound{.binding = binding}));
  else
    bound_.splice(bound_.begin(), bound_, at);
  return bound_.front();
}

std::unique_ptr<Program> ProgramCache::take(const std::shared_ptr<Bound>& bound) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return !bound->idle.empty() || (!bound->is_making && bound->programs < limits_.programs);
    });
    if (!bound->idle.empty()) {
      std::unique_ptr<Program> program = std::move(bound->idle.back());
      bound->idle.pop_back();
      return program;
    }
    bound->is_making = true;
    ++bound->programs;
  }
  std::unique_ptr<Program> program;
  try {
    program = make(*bound);
  } catch (...) {
    finish_making(bound, false);
    throw;
  }
  finish_making(bound, true);
  return program;
}

std::unique_ptr<Program> ProgramCache::make(Bound& bound) {
  if (bound.compiled == nullptr) bound.compiled = compile(bound.binding);
  return std::make_unique<Program>(bound.compiled, state_, inference_options(source_));
}

std::shared_ptr<const CompiledProgram> ProgramCache::compile(const Binding& binding) {
  Backend& backend = state_.backend();
  ProgramOptions options = inference_options(source_);
  if (choices_) {
    RecipeKernels kernels(*choices_, backend);
    if (choices_->precision != DType::kF32) options.passes.precision = choices_->precision;
    options.passes.off = choices_->passes_off;
    options.plan.choose = kernels.choose();
    return std::make_shared<const CompiledProgram>(
        compile_program(source_.bind(binding), backend, options));
  }
  Tuning tuning(backend, tune_ ? Tuning::Keeping::kPicks : Tuning::Keeping::kReads);
  options.plan.choose = tuning.choose(inference_range(backend));
  auto compiled = std::make_shared<const CompiledProgram>(
      compile_program(source_.bind(binding), backend, options));
  const std::lock_guard lock(mutex_);
  picks_.timed += tuning.tuner().timed();
  picks_.kept += tuning.tuner().cached();
  if (!tuning.note().empty()) picks_.note = tuning.note();
  return compiled;
}

PickCounts ProgramCache::picks() {
  const std::lock_guard lock(mutex_);
  return picks_;
}

// Others are forgotten only when there is something in their place.
void ProgramCache::finish_making(const std::shared_ptr<Bound>& bound, bool is_made) {
  std::vector<std::shared_ptr<Bound>> forgotten;  // freed without the lock
  const std::lock_guard lock(mutex_);
  bound->is_making = false;
  if (!is_made) --bound->programs;
  if (bound->compiled == nullptr) bound_.remove(bound);
  while (bound_.size() > limits_.bindings) {
    forgotten.push_back(std::move(bound_.back()));
    bound_.pop_back();
  }
  changed_.notify_all();
}

void ProgramCache::give_back(Bound& bound, std::unique_ptr<Program> program) {
  const std::lock_guard lock(mutex_);
  if (program == nullptr)
    --bound.programs;
  else
    bound.idle.push_back(std::move(program));
  changed_.notify_all();
}

}  // namespace ridge
