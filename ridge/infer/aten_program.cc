// The face of import/aten: a graph, compiled once, with a program for each thread that runs it.
#include "ridge/api/aten_program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>

#include "ridge/base/alignment.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/cpu/touch_pages.h"
#include "ridge/base/tensor.h"
#include "ridge/compile/plan.h"
#include "ridge/compile/written_over.h"
#include "ridge/import/aten/import.h"
#include "ridge/infer/load_model.h"
#include "ridge/infer/weights.h"
#include "ridge/run/backends.h"
#include "ridge/run/program.h"
#include "ridge/run/tuning.h"

namespace ridge {
namespace {

constexpr const char* kDevice = "cpu";

// Ops that were written out are recognised: torch's own compilers add up in other orders, too.
ProgramOptions options_of_programs() {
  ProgramOptions options = inference_options();
  options.passes.highest = SemanticClass::kReassociation;
  options.plan.binds = true;
  return options;
}

std::shared_ptr<const CompiledProgram> compile(ProgramGraphs graphs, Backend& backend) {
  Tuning tuning(backend, Tuning::Keeping::kReads);
  ProgramOptions options = options_of_programs();
  options.plan.choose = tuning.choose(inference_range(backend));
  return std::make_shared<const CompiledProgram>(
      compile_program(std::move(graphs), backend, options));
}

// A team waits for each of its threads; one that sleeps comes after some 50 us.
constexpr int64_t kLeastTeamRun = 50000;  // nanoseconds

std::atomic<AtenProgram::ThreadTeam> team = nullptr;

// A few bytes of a constant: whoever writes to all of it changes them.
uint64_t sample(const void* constant, size_t bytes) {
  constexpr size_t kPlaces = 2;
  uint64_t mixed = 0;
  const size_t width = std::min(bytes, sizeof(uint64_t));
  for (size_t i = 0; i < kPlaces; ++i) {
    uint64_t part = 0;
    const size_t at = (bytes - width) / 3 * (i + 1);
    std::memcpy(&part, static_cast<const std::byte*>(constant) + at, width);
    mixed = (mixed ^ part) * 0x9e3779b97f4a7c15u;
    mixed ^= mixed >> 32;
  }
  return mixed;
}

}  // namespace

std::vector<AtenRefusal> aten_refusals(std::string_view graph) {
  std::vector<AtenRefusal> refusals;
  for (aten::Refusal& each : aten::refusals(aten::parse_aten_graph(graph)))
    refusals.push_back({each.node, std::move(each.reason)});
  return refusals;
}

namespace {

// Programs over one reading of the constants. Threads that run them keep it.
struct Instance {
  std::shared_ptr<State> state = make_state(make_backend(kDevice));
  std::shared_ptr<const CompiledProgram> compiled = nullptr;
  std::vector<std::unique_ptr<Program>> idle = {};

  std::unique_ptr<Program> take() {
    if (idle.empty()) return std::make_unique<Program>(compiled, *state, options_of_programs());
    std::unique_ptr<Program> program = std::move(idle.back());
    idle.pop_back();
    return program;
  }
};

std::optional<DataSlot> slot_named(const std::vector<PlanSlot>& slots, const std::string& name) {
  for (size_t i = 0; i < slots.size(); ++i)
    if (slots[i].name == name) return DataSlot{.number = i};
  return std::nullopt;
}

}  // namespace

struct AtenProgram::Loaded {
  Loaded(std::string_view text, std::vector<const void*> addresses)
      : graph(aten::parse_aten_graph(text)) {
    take_constants(std::move(addresses));
    instance = std::make_shared<Instance>();
    import_and_compile(*instance);
    const Plan& plan = instance->compiled->plan;
    workspace_bytes = static_cast<size_t>(plan.arena_bytes);
    const EntryPlan& entry = plan.entries.at(0);
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      inputs.push_back(slot_named(entry.inputs, aten::input_name(i)));
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      outputs.push_back(slot_named(entry.outputs, aten::output_name(i)));
    for (size_t i = 0; i < graph.outputs.size(); ++i) is_late.push_back(is_written_late(i));
    instance->idle.push_back(instance->take());
  }

  // An output that goes over an input which is still read while it is made.
  bool is_written_late(size_t output) const {
    const std::optional<size_t> over = graph.outputs[output].over;
    if (!over || !inputs[*over]) return false;
    const EntryPlan& entry = instance->compiled->plan.entries.at(0);
    return !may_write_over(instance->compiled->graphs.entries.at(0),
                           entry,
                           entry.outputs[outputs[output]->number],
                           entry.inputs[inputs[*over]->number]);
  }

  void import_and_compile(Instance& of) {
    aten::ImportedGraph imported = aten::import_graph(graph, constants);
    orders = std::move(imported.orders);
    of.compiled = compile(std::move(imported.program), of.state->backend());
  }

  void take_constants(std::vector<const void*> addresses) {
    check(addresses.size() == graph.inputs.size(),
          "{} addresses for {} inputs",
          addresses.size(),
          graph.inputs.size());
    for (size_t i = 0; i < addresses.size(); ++i)
      check(graph.inputs[i].is_constant == (addresses[i] != nullptr),
            "input {} is {} constant",
            i,
            graph.inputs[i].is_constant ? "a" : "no");
    constants = std::move(addresses);
    samples = sample_all();
  }

  std::vector<uint64_t> sample_all() const {
    std::vector<uint64_t> all;
    for (size_t i = 0; i < constants.size(); ++i)
      if (constants[i] != nullptr)
        all.push_back(sample(constants[i], static_cast<size_t>(graph.inputs[i].type.type.bytes())));
    return all;
  }

  // Packed weights lie in the state: constants that changed need another one.
  void refresh(std::vector<const void*> addresses) {
    const std::lock_guard lock(mutex);
    const bool is_moved = addresses != constants;
    take_constants(std::move(addresses));
    auto next = std::make_shared<Instance>();
    next->compiled = instance->compiled;
    if (is_moved) import_and_compile(*next);
    instance = std::move(next);
  }

  // A program that failed is not used again: it may hold half of a run.
  void run(std::span<const void* const> from, std::span<void* const> to, void* workspace) {
    check(from.size() == inputs.size() && to.size() == outputs.size(),
          "{} inputs and {} outputs for a graph of {} and {}",
          from.size(),
          to.size(),
          inputs.size(),
          outputs.size());
    std::shared_ptr<Instance> used;
    std::unique_ptr<Program> program;
    {
      // Programs of one compilation are made one after the other.
      const std::lock_guard lock(mutex);
      used = instance;
      program = used->take();
    }
    check(workspace != nullptr || workspace_bytes == 0, "there is no workspace");
    program->bind_arena(workspace);
    std::vector<std::unique_ptr<std::byte[]>> copies;
    for (size_t i = 0; i < from.size(); ++i) {
      if (!inputs[i]) continue;
      check(from[i] != nullptr, "input {} is not there", i);
      program->bind_input(*inputs[i], aligned(i, from[i], copies));
    }
    std::vector<LateOutput> late;
    for (size_t i = 0; i < to.size(); ++i) {
      check(to[i] != nullptr, "output {} is not there", i);
      const bool is_loose = reinterpret_cast<uintptr_t>(to[i]) % kBufferAlignment != 0;
      if (is_late[i] || is_loose) late.push_back({to[i], Tensor(graph.outputs[i].type.type)});
      void* const address = is_late[i] || is_loose ? late.back().made.data() : to[i];
      program->bind_output(outputs[i].value(), address);
    }
    run_timed(*program);
    for (const LateOutput& each : late)
      std::memcpy(each.place, each.made.data(), each.made.bytes());
    const std::lock_guard lock(mutex);
    used->idle.push_back(std::move(program));
  }

  void run_timed(Program& program) {
    using std::chrono::nanoseconds, std::chrono::steady_clock;
    const auto start = steady_clock::now();
    const auto run = [&] {
      program.run(0);
      program.synchronize();
    };
    const ThreadTeam threads = team;
    if (threads != nullptr && last_run.load(std::memory_order_relaxed) >= kLeastTeamRun)
      with_team(threads, run);
    else
      run();
    last_run.store(nanoseconds(steady_clock::now() - start).count(), std::memory_order_relaxed);
  }

  // Kernels read elements at multiples of their size; a tensor may lie anywhere in a file, say.
  const void* aligned(size_t number,
                      const void* from,
                      std::vector<std::unique_ptr<std::byte[]>>& copies) const {
    const TensorType& type = graph.inputs[number].type.type;
    if (reinterpret_cast<uintptr_t>(from) % size_of(type.dtype) == 0) return from;
    const auto bytes = static_cast<size_t>(type.bytes());
    auto& copy = copies.emplace_back(std::make_unique<std::byte[]>(bytes));
    std::memcpy(copy.get(), from, bytes);
    return copy.get();
  }

  // It is made elsewhere, and then copied to its place.
  struct LateOutput {
    void* place;
    Tensor made;
  };

  aten::AtenGraph graph;
  size_t workspace_bytes = 0;
  std::vector<std::vector<int64_t>> orders;              ///< Each output has its own.
  std::vector<std::optional<DataSlot>> inputs, outputs;  ///< Nothing where no program reads it.
  std::vector<bool> is_late;  ///< Outputs that cannot be made at their places.
  std::vector<const void*> constants;
  std::vector<uint64_t> samples;
  std::atomic<int64_t> last_run = INT64_MAX;  ///< Nanoseconds; the first run counts as long.
  std::mutex mutex;                           ///< It guards the instance, and what is idle.
  std::shared_ptr<Instance> instance;
};

AtenProgram::AtenProgram(std::string_view graph, std::vector<const void*> constants)
    : loaded_(std::make_unique<Loaded>(graph, std::move(constants))) {}

AtenProgram::~AtenProgram() = default;
AtenProgram::AtenProgram(AtenProgram&&) noexcept = default;
AtenProgram& AtenProgram::operator=(AtenProgram&&) noexcept = default;

const std::vector<std::vector<int64_t>>& AtenProgram::orders() const { return loaded_->orders; }

size_t AtenProgram::workspace_bytes() const { return loaded_->workspace_bytes; }

void AtenProgram::run(std::span<const void* const> inputs,
                      std::span<void* const> outputs,
                      void* workspace) {
  loaded_->run(inputs, outputs, workspace);
}

void AtenProgram::use_team(ThreadTeam threads) { team = threads; }

void AtenProgram::make_resident(void* memory, size_t bytes) { touch_pages(memory, bytes); }

bool AtenProgram::is_stale() const { return loaded_->sample_all() != loaded_->samples; }

void AtenProgram::refresh(std::vector<const void*> constants) {
  loaded_->refresh(std::move(constants));
}

std::string AtenProgram::plan() const { return print(loaded_->instance->compiled->plan); }

}  // namespace ridge
