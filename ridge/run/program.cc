#include "ridge/run/program.h"

#include <algorithm>

#include "ridge/base/trace/trace.h"
#include "ridge/graph/text.h"
#include "ridge/graph/verify.h"
#include "ridge/run/not_finite.h"

namespace ridge {

ProgramOptions plain_options() {
  ProgramOptions options;
  options.passes.off = {"all"};
  options.plan.reuse = false;
  options.reparse = true;
  options.capture = Capture::kOff;
  return options;
}

CompiledProgram compile_program(ProgramGraphs graphs,
                                Backend& backend,
                                const ProgramOptions& options) {
  CompiledProgram compiled{.graphs = std::move(graphs), .passes = {}, .plan = {}};
  PipelineOptions passes = options.passes;
  int64_t choosing_ns = 0;
  PlanOptions plan = options.plan;
  plan.choosing_ns = &choosing_ns;
  passes.choosing_ns = &choosing_ns;
  passes.arena = arena_options(compiled.graphs.state, backend, plan);
  if (options.memory_limit > 0)
    passes.arena_limit =
        std::max<int64_t>(1,
                          options.memory_limit - state_bytes(compiled.graphs.state) -
                              staging_bytes(compiled.graphs, backend));
  for (Graph& graph : compiled.graphs.entries) {
    const auto reports = run_pipeline(graph, backend, passes);
    compiled.passes.insert(compiled.passes.end(), reports.begin(), reports.end());
    if (options.reparse) graph = parse_graph(print(graph), graph.name());
  }
  const std::vector<StateEntry> declared = compiled.graphs.state;
  // Other programs may share it: it depends on its graph alone, and on no option of this program.
  PipelineOptions exact;
  exact.off = options.passes.off;
  for (StateEntry& entry : compiled.graphs.state) {
    if (entry.derivation == nullptr) continue;
    Graph graph = entry.derivation->clone();
    run_pipeline(graph, backend, exact);
    entry.derivation = std::make_shared<const Graph>(std::move(graph));
  }
  PlanOptions made = options.plan;
  made.packs = made.packs && options.memory_limit == 0;  // the limit knows nothing of packed copies
  compiled.plan = make_plan(compiled.graphs, backend, made);
  // A state compares derivations as they were declared, whatever passes made of them.
  for (size_t i = 0; i < declared.size(); ++i)
    compiled.graphs.state[i].derivation = declared[i].derivation;
  return compiled;
}

Program::Program(ProgramGraphs graphs, State& state, const ProgramOptions& options)
    : Program(std::make_shared<const CompiledProgram>(
                  compile_program(std::move(graphs), state.backend(), options)),
              state,
              options) {}

Program::Program(std::shared_ptr<const CompiledProgram> compiled,
                 State& state,
                 const ProgramOptions& options)
    : state_(state),
      backend_(state.backend()),
      compiled_(std::move(compiled)),
      capture_(options.capture),
      stream_(backend_.make_stream()) {
  if (capture_ == Capture::kOn && !backend_.can_record())
    throw UserError(fmt::format("device '{}' cannot capture the launches of a step", plan().device),
                    "set train.capture to auto");
  // A recording has the addresses of then.
  const bool records = capture_ != Capture::kOff && backend_.can_record() && !plan().binds;
  recordings_.resize(plan().entries.size());
  recorded_.resize(plan().entries.size(), records ? Recorded::kAfterARun : Recorded::kNever);
  refusals_.resize(plan().entries.size());
  is_in_trace_.resize(plan().entries.size());
  for (size_t i = 0; i < plan().entries.size(); ++i)
    launches_.emplace_back(entries()[i], plan().entries[i], backend_);
  for (const DerivationPlan& derivation : plan().derivations)
    derivations_.emplace_back(derivation, backend_);
  // When all are there: a backend compiles them together.
  for (const Launches& launches : launches_) launches.prepare();
  for (const Derivation& derivation : derivations_) derivation.prepare();
  if (backend_.is_asynchronous()) {
    // A device may take memory for these, which is not the plan's.
    copies_ = backend_.make_stream();
    computed_ = stream_->make_event();
    was_read_ = stream_->make_event();
  }
  if (options.before_memory) options.before_memory(plan());
  // All that can fail comes before the state grows.
  if (!plan().binds) own_arena_ = resident_memory(backend_, plan().arena_bytes);
  if (copies_ != nullptr) staging_ = std::make_unique<InputStaging>(plan(), backend_, *copies_);
  bind_state();
  if (!plan().binds) bind_arena(own_arena_.get());
  use_ = std::make_unique<StateUse>(state_, *stream_, copies_.get());
}

// Queued work uses the memory, the kernels, and what the caller gave to read into.
Program::~Program() {
  try {
    synchronize();
  } catch (...) {  // a destructor cannot report errors
  }
  constants_.clear();
  state_.free_spare();
}

void Program::bind_state() {
  for (const Graph& graph : entries())
    for (const Output& output : graph.outputs())
      if (state_.has(output.updates)) (void)state_.writable(output.updates);
  buffers_ = state_.declare(compiled_->graphs.state);
  for (const Graph& graph : entries()) {
    std::vector<StateBuffer*>& updated = updates_.emplace_back();
    for (const Output& output : graph.outputs())
      if (!output.updates.empty()) updated.push_back(state_.writable(output.updates).get());
  }
  for (Derivation& derivation : derivations_) derivation.bind(state_, buffers_);
  // Derivations use theirs while they run.
  for (const size_t slot : plan().constants) constants_.emplace_back(state_, buffers_[slot]);
  state_.free_spare();
}

void Program::bind_arena(void* memory) {
  if (memory == arena_ && !bindings_.empty()) return;
  stream_->synchronize();  // queued launches read their addresses when they run
  arena_ = memory;
  const auto own = [this](const Place& place) { return address(place, arena_); };
  bindings_.clear();
  for (size_t i = 0; i < launches_.size(); ++i) {
    launches_[i].bind(own);
    bindings_.emplace_back(plan().entries[i], launches_[i], backend_, *stream_, own);
  }
}

// The plan lays the state out as one piece; here each buffer has an address of its own.
void* Program::address(const Place& place, void* arena) const {
  if (place.region == Region::kArena) return static_cast<std::byte*>(arena) + place.offset;
  if (place.region == Region::kBound) return nullptr;
  const size_t at = slot_at(plan().state, place);
  return buffers_[at]->data + (place.offset - plan().state[at].place.offset);
}

namespace {

const PlanSlot& slot_of(const std::vector<PlanSlot>& slots,
                        std::string_view kind,
                        std::string_view name,
                        std::string_view entry) {
  if (const PlanSlot* slot = find_slot(slots, name); slot != nullptr) return *slot;
  std::vector<std::string> names;
  for (const PlanSlot& slot : slots) names.push_back(slot.name);
  throw UserError(fmt::format("entry '{}' has no {} '{}'", entry, kind, name),
                  did_you_mean(name, names));
}

}  // namespace

size_t Program::entry(std::string_view name) const {
  std::vector<std::string> names;
  for (size_t i = 0; i < plan().entries.size(); ++i) {
    if (plan().entries[i].name == name) return i;
    names.push_back(plan().entries[i].name);
  }
  throw UserError(fmt::format("the program has no entry '{}'", name), did_you_mean(name, names));
}

DataSlot Program::input(size_t entry, std::string_view name) const {
  const EntryPlan& of = plan().entries.at(entry);
  const PlanSlot& slot = slot_of(of.inputs, "input", name, of.name);
  return {.address = address(slot.place, arena_),
          .bytes = static_cast<size_t>(slot.place.bytes),
          .entry = entry,
          .staging = slot.staging,
          .is_state = false,
          .number = static_cast<size_t>(&slot - of.inputs.data())};
}

DataSlot Program::output(size_t entry, std::string_view name) const {
  const EntryPlan& of = plan().entries.at(entry);
  const PlanSlot& slot = slot_of(of.outputs, "output", name, of.name);
  return {.address = address(slot.place, arena_),
          .bytes = static_cast<size_t>(slot.place.bytes),
          .entry = entry,
          .staging = DataSlot::kNotStaged,
          .is_state = slot.place.region == Region::kState,
          .number = static_cast<size_t>(&slot - of.outputs.data())};
}

std::string_view Program::bind_input(DataSlot slot, const void* address) {
  const std::string_view why = bindings_.at(slot.entry).bind_input(slot.number, address);
  rebind(slot.entry);
  return why;
}

std::string_view Program::bind_output(DataSlot slot, void* address) {
  const std::string_view why = bindings_.at(slot.entry).bind_output(slot.number, address);
  rebind(slot.entry);
  return why;
}

// A recording has the addresses of then.
void Program::rebind(size_t entry) {
  if (!bindings_[entry].take_changed() || recordings_[entry] == nullptr) return;
  recordings_[entry] = nullptr;
  recorded_[entry] = Recorded::kNever;
  refusals_[entry] = "the addresses of its data change";
}

void Program::write(DataSlot slot, const void* host) {
  if (staging_ == nullptr)
    backend_.copy_to_device(*stream_, slot.address, host, slot.bytes);
  else
    staging_->write(slot.entry, slot.address, slot.staging, host, slot.bytes);
}

void Program::write_scalars(DataSlot slot, const void* host) {
  if (staging_ == nullptr)
    backend_.copy_to_device(*stream_, slot.address, host, slot.bytes);
  else
    staging_->write_scalars(slot.entry, slot.address, slot.staging, host, slot.bytes);
}

void Program::write_rows(DataSlot slot, const void* host, size_t bytes, size_t stride) {
  const size_t rows = slot.bytes / bytes;
  if (staging_ != nullptr)
    return staging_->write_rows(slot.entry, slot.address, slot.staging, host, bytes, stride, rows);
  auto* to = static_cast<std::byte*>(slot.address);
  const auto* from = static_cast<const std::byte*>(host);
  for (size_t row = 0; row < rows; ++row, to += bytes, from += stride)
    backend_.copy_to_device(*stream_, to, from, bytes);
}

// On the stream of copies, beside what the next run computes until it would write there.
void Program::read(const void* address, size_t bytes, void* host) {
  if (staging_ == nullptr) return backend_.copy_to_host(*stream_, host, address, bytes);
  if (!is_reading_) {
    stream_->record(*computed_);
    copies_->wait(*computed_);
    is_reading_ = true;
  }
  backend_.copy_to_host(*copies_, host, address, bytes);
}

void Program::read(DataSlot slot, void* host) {
  if (slot.is_state) return read_state(slot.address, slot.bytes, host);
  read(slot.address, slot.bytes, host);
}

void Program::read(const PlanSlot& state, void* host) {
  read_state(address(state.place, arena_), static_cast<size_t>(state.place.bytes), host);
}

void Program::read_state(const void* address, size_t bytes, void* host) {
  use_->read([&] {
    is_reading_ = false;  // copies wait again: for what other programs have written
    read(address, bytes, host);
  });
}

// Moves the inputs that wait in a slot to their place, after the values that were there have been
// read.
void Program::take_inputs(size_t entry) {
  if (is_reading_) {
    copies_->record(*was_read_);
    stream_->wait(*was_read_);
    is_reading_ = false;
  }
  staging_->take(entry, *stream_);
}

void Program::run(size_t entry, RunMode mode) {
  if (staging_ != nullptr) take_inputs(entry);
  if (mode == RunMode::kNormal) {
    bindings_[entry].queue_inputs();
    use_state(entry, [&] {
      launch_all(entry);
      bindings_[entry].queue_outputs();  // of which some may be state
    });
  }
  if (staging_ != nullptr) staging_->finish();
}

// The state's lock is held while `queue` runs. Derived buffers are looked at beside other readers,
// and made alone; with that lock the run is queued at once, before their sources are written again.
void Program::use_state(size_t entry, FunctionRef<void()> queue) {
  const std::vector<StateBuffer*>& updated = updates_.at(entry);
  const std::vector<size_t>& derived = plan().entries[entry].derived;
  if (updated.empty()) {
    bool is_queued = false;
    use_->read([&] {
      for (const size_t number : derived)
        if (derivations_[number].is_stale()) return;
      is_queued = true;
      queue();
    });
    if (is_queued) return;
  }
  use_->write([&] {
    derive(entry);
    // Also if a launch fails: it may have written.
    for (StateBuffer* const buffer : updated) ++buffer->version;
    queue();
  });
}

void Program::derive(size_t entry) {
  DeviceMemory arena;
  for (const size_t number : plan().entries[entry].derived) {
    if (!derivations_[number].is_stale()) continue;
    if (arena.get() == nullptr && plan().derivation_bytes > 0)
      arena = DeviceMemory(backend_, static_cast<size_t>(plan().derivation_bytes));
    derivations_[number].make(*stream_,
                              [&](const Place& place) { return address(place, arena.get()); });
  }
  state_.free_spare();
}

// The first run launches one by one, so that work which a launch does only once (loading its code,
// say) is in no recording. In a trace, too, the first run launches one by one: that shows for each
// piece of work of later replays which site it belongs to. Where no device reports the work of a
// recording, all runs in a trace do.
void Program::launch_all(size_t entry) {
  const bool is_traced = is_tracing();
  const bool is_shown =
      !is_traced || (is_in_trace_.at(entry) && is_heard_by(ScopeListener::kDevice));
  is_in_trace_.at(entry) = is_traced;
  if (recorded_[entry] == Recorded::kNext && !is_traced && record(entry)) return;
  if (recorded_[entry] == Recorded::kDone && is_shown) {
    const TraceScope scope("replay", "cpu_op");
    return recordings_[entry]->launch(*stream_);
  }
  launches_[entry].queue(*stream_);
  if (recorded_[entry] == Recorded::kAfterARun) recorded_[entry] = Recorded::kNext;
}

// Records it and replays that; false where it cannot be recorded.
bool Program::record(size_t entry) {
  const int64_t before = backend_.memory_in_use();
  RecordingResult made = backend_.record(*stream_, [&] { launches_[entry].queue(*stream_); });
  if (made.recording == nullptr) {
    recorded_[entry] = Recorded::kNever;
    refusals_[entry] = std::move(made.refusal);
    if (capture_ != Capture::kOn) return false;
    throw UserError(fmt::format("device '{}' cannot capture all launches of '{}': {}",
                                plan().device,
                                plan().entries[entry].name,
                                refusals_[entry]),
                    "set train.capture to auto");
  }
  recordings_[entry] = std::move(made.recording);
  recorded_[entry] = Recorded::kDone;
  recordings_[entry]->launch(*stream_);
  // A driver may take some of it only when it first runs. Others may give some back meanwhile.
  recorded_bytes_ += std::max<int64_t>(0, backend_.memory_in_use() - before);
  return true;
}

// Both streams, whatever one of them says: copies still use memory of the host.
void Program::synchronize() const {
  if (staging_ == nullptr) return stream_->synchronize();
  std::exception_ptr error;
  for (Stream* const stream : {stream_.get(), copies_.get()}) try {
      stream->synchronize();
    } catch (...) {
      if (error == nullptr) error = std::current_exception();
    }
  is_reading_ = false;
  use_->finish();
  if (error != nullptr) std::rethrow_exception(error);
}

std::string Program::first_not_finite(size_t entry) {
  if (staging_ != nullptr) take_inputs(entry);
  bindings_.at(entry).queue_inputs();
  std::string site;
  use_state(entry, [&] {
    site = ridge::first_not_finite(entries().at(entry), launches_[entry], backend_, *stream_);
  });
  return site;
}

}  // namespace ridge
