// The library's Session over a ModelSession.
#include <unistd.h>

#include <atomic>

#include "ridge/backend/backend.h"
#include "ridge/infer/model_recipe.h"
#include "ridge/infer/model_session.h"
#include "ridge/ridge.h"
#include "ridge/run/state.h"

namespace ridge {
namespace {

// A child of a fork has one thread, so what other threads of its parent held (a lock, a program,
// the pool) is never given back in it. Both are of the whole process: caches are shared by
// sessions.
std::atomic<pid_t> calling_process{0};
std::atomic<int> open_calls{0};

// The time that a session is in a call. UserError where another one was at a fork.
class Call {
 public:
  Call() {
    const pid_t self = ::getpid();
    if (const pid_t before = calling_process.load(); before != self) {
      // `calling_process` changes before the first call of this process counts.
      if (open_calls.load() > 0 && calling_process.load() == before)
        throw UserError(
            fmt::format("process {} was forked while a session of {} was in a call", self, before),
            "fork before sessions run, or start the process anew (in Python: method 'spawn')");
      calling_process.store(self);
    }
    open_calls.fetch_add(1);
  }
  ~Call() { open_calls.fetch_sub(1); }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
};

ModelRecipe recipe_of(const std::string& path, const SessionOptions& options) {
  return options.recipe.empty() ? ModelRecipe{} : read_model_recipe(options.recipe, path);
}

LoadedModel load_as(const std::string& path,
                    const SessionOptions& options,
                    const ModelRecipe& recipe) {
  return load_model(model_to_run(recipe, options.recipe, path),
                    {.weights = options.weights, .device = options.device});
}

InputTensor input_of(const std::string& name, const ArrayView& view) {
  TensorType type{view.dtype, view.shape};
  check_type(type, name);
  if (view.bytes != static_cast<size_t>(type.bytes()))
    throw UserError(fmt::format("input '{}' has {} bytes of data; {} takes {}",
                                name,
                                view.bytes,
                                to_string(type),
                                type.bytes()),
                    "give the shape of the whole array, row-major and without gaps");
  return {std::move(type), view.data};
}

Array array_of(Tensor&& tensor) {
  const auto owner = std::make_shared<Tensor>(std::move(tensor));
  return {.dtype = owner->type().dtype,
          .shape = owner->type().shape,
          .data = std::shared_ptr<void>(owner, owner->data())};
}

// Settings of a recipe are in force before anything is compiled.
ProgramLimits limits_for(const SessionOptions& options, const ModelRecipe& recipe) {
  ProgramLimits limits{.bindings = options.bindings, .programs = options.programs};
  if (options.recipe.empty()) return limits;
  apply_settings(recipe, options.recipe);
  limits.choices = recipe.choices;
  if (limits.programs == 0) limits.programs = static_cast<size_t>(recipe.instances);
  return limits;
}

}  // namespace

struct Session::Loaded {
  Loaded(const std::string& path, const SessionOptions& options)
      : Loaded(path, options, recipe_of(path, options)) {}
  Loaded(const std::string& path, const SessionOptions& options, const ModelRecipe& recipe)
      : session(load_as(path, options, recipe), limits_for(options, recipe)),
        is_host(session.model().state->backend().is_host()) {}

  // A GPU knows the process that opened it, and no child of it.
  void check_process() const {
    if (!is_host && maker != ::getpid())
      throw UserError(
          fmt::format("process {} uses a session on a GPU that its parent made", ::getpid()),
          "make it in this process");
  }

  ModelSession session;
  bool is_host;
  pid_t maker = ::getpid();
};

const char* version() { return RIDGE_VERSION; }

Session::Session(const std::string& path, const SessionOptions& options) {
  const Call call;
  loaded_ = std::make_unique<Loaded>(path, options);
}

Session::~Session() = default;
Session::Session(Session&&) noexcept = default;
Session& Session::operator=(Session&&) noexcept = default;

const std::vector<DataSpec>& Session::inputs() const { return loaded_->session.inputs(); }
const std::vector<DataSpec>& Session::outputs() const { return loaded_->session.outputs(); }

void Session::bind(const Binding& sizes) {
  const Call call;
  loaded_->check_process();
  loaded_->session.bind(sizes);
}

std::map<std::string, Array> Session::run(const std::map<std::string, ArrayView>& inputs) {
  const Call call;
  loaded_->check_process();
  NamedInputs tensors;
  for (const auto& [name, view] : inputs) tensors.emplace(name, input_of(name, view));
  std::map<std::string, Array> outputs;
  for (auto& [name, tensor] : loaded_->session.run(tensors))
    outputs.emplace(name, array_of(std::move(tensor)));
  return outputs;
}

}  // namespace ridge
