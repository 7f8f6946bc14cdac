// The plan: what runs in which order, by which kernel, and where every byte lies. It is data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/backend/backend.h"
#include "ridge/compile/memory/arena.h"
#include "ridge/graph/program_graphs.h"

namespace ridge {

enum class Region : uint8_t {
  kState,  ///< Lives from run to run.
  kArena,  ///< Shared by all entries, which never run at the same time.
  kBound,  ///< Memory of the caller: see PlanOptions::binds.
};

/// Bytes of a region.
struct Place {
  Region region = Region::kArena;
  int64_t offset = 0;
  int64_t bytes = 0;

  bool operator==(const Place&) const = default;
};

/// One launch. `node` is the node's id in the entry's graph.
struct PlanStep {
  int node = 0;
  std::string op;
  std::string site;
  size_t choice = 0;
  std::string choice_name;
  bool is_packed = false;  ///< By Backend::instantiate_packed(): operands of the node are packed.
  std::vector<Place> inputs, outputs;
  Place workspace;  ///< Empty where the kernel needs none.
};

/// An operand or a result of a launch.
struct LaunchOperand {
  size_t step = 0;
  size_t number = 0;
  bool is_result = false;

  bool operator==(const LaunchOperand&) const = default;
};

struct PlanSlot {
  std::string name;
  TensorType type;
  Place place;
  int64_t staging = 0;  ///< Offset of a data input in a staging slot, in bytes.
  /// All launches that read or make the datum, and so all whose address changes where it lies
  /// elsewhere. Empty for state, and where it can lie only here: it has the bytes of another
  /// input or output, or is a part of what a launch makes.
  std::vector<LaunchOperand> uses = {};
};

/// The slot of that name; null when there is none.
const PlanSlot* find_slot(const std::vector<PlanSlot>& slots, std::string_view name);

/// The number of the slot of the state that holds the place.
size_t slot_at(const std::vector<PlanSlot>& state, const Place& place);

struct EntryPlan {
  std::string name;
  std::vector<PlanStep> steps;
  std::vector<PlanSlot> inputs;   ///< Data, written before each run.
  std::vector<PlanSlot> outputs;  ///< Results, to be read before the next run of any entry.
  std::vector<size_t> derived;    ///< The derivations of what it reads, those of their sources too.
  int64_t peak_bytes = 0;         ///< Bytes of the arena.
  int64_t lower_bound_bytes = 0;  ///< The largest live set: no plan of this order needs less.
};

/// The plan of StateEntry::derivation.
struct DerivationPlan {
  size_t slot = 0;                     ///< The slot of the state that it makes.
  std::vector<size_t> sources;         ///< The slots that it reads.
  std::shared_ptr<const Graph> graph;  ///< The graph that was planned.
  EntryPlan entry;
  /// If it is not null, it makes the slot of the elements of the only source, as they lie in memory
  /// of the host, and the entry has no steps: a constant is read where it came from.
  std::shared_ptr<const NodeKernel> kernel = nullptr;
};

struct Plan {
  std::string device;
  bool binds = false;  ///< The plan was made with PlanOptions::binds.
  std::vector<PlanSlot> state;
  std::vector<StateRole> roles;   ///< One a state slot.
  std::vector<size_t> constants;  ///< The slots of constants that entries read.
  std::vector<EntryPlan> entries;
  std::vector<DerivationPlan> derivations;  ///< By slot: sources before what is made from them.
  int64_t state_bytes = 0;
  /// Bytes of constants in the state that entries read where they lie already, in a mapped file
  /// say: they take no memory.
  int64_t lent_bytes = 0;
  /// Bytes of constants in the state that derivations alone read, and the most that is copied for
  /// one of those: they have memory while it runs.
  int64_t passing_bytes = 0, passing_peak_bytes = 0;
  int64_t arena_bytes = 0;
  int64_t arena_lower_bound_bytes = 0;
  /// Bytes of the slots that inputs are written into while an entry runs, see staging_bytes().
  int64_t staging_bytes = 0;
  /// Bytes of an arena for derivations, which is there only while one runs, beside that of the
  /// entries: their inputs lie there by then.
  int64_t derivation_bytes = 0;

  int64_t total_bytes() const {
    return allocated_state_bytes() + arena_bytes + staging_bytes + deriving_bytes();
  }
  int64_t lower_bound_bytes() const {
    return allocated_state_bytes() + arena_lower_bound_bytes + staging_bytes + deriving_bytes();
  }
  /// Bytes of the state that memory is taken for, and keeps.
  int64_t allocated_state_bytes() const { return state_bytes - lent_bytes - passing_bytes; }
  /// Bytes beside those while derivations run.
  int64_t deriving_bytes() const { return derivation_bytes + passing_peak_bytes; }
};

/// Id of the candidate to use for a node.
using ChooseCandidate = std::function<size_t(const Node&, const std::vector<Choice>&)>;

struct PlanOptions {
  /// Off: every value has bytes of its own, reshapes copy, updates are copied at the end.
  bool reuse = true;
  /// Parameters that no entry updates are packed for the kernels that read them, where a kernel
  /// asks for it: for programs that evaluate, since the packed copies are state besides.
  bool packs = false;
  /// Inputs and outputs are bound to memory of the caller before each run, and so is the arena,
  /// which has no bytes for those that may lie anywhere.
  bool binds = false;
  /// Default: the first candidate.
  ChooseCandidate choose = nullptr;
  /// The ns that choosing kernels takes (compiling and timing them) are added here. Null: nowhere.
  int64_t* choosing_ns = nullptr;
};

/// Bytes of the state in a plan.
int64_t state_bytes(const std::vector<StateEntry>& state);

/// Bytes of the two staging slots that a program needs where the device runs beside the host: one
/// takes the data of the next run while the other still holds that of the last. All entries share
/// them, for one is written and run after the other. 0 where inputs are written in place.
int64_t staging_bytes(const ProgramGraphs& graphs, const Backend& backend);

/// The options by which make_plan counts an entry's arena, for callers that want to know before
/// there is a plan. All arguments must outlive the result.
ArenaOptions arena_options(const std::vector<StateEntry>& state,
                           Backend& backend,
                           const PlanOptions& options);

/// Plans all entries over one state, and the derivations of what they read. The graphs are changed
/// where an update needs a copy, and where parameters are packed, which adds them to the state.
/// InternalError when the backend lacks a kernel (lower_unsupported comes before); UserError when
/// the graphs do not fit the state: another type, an update of an input that is not state or that
/// is derived, two entries of one name.
Plan make_plan(ProgramGraphs& graphs, Backend& backend, const PlanOptions& options);

/// The plan as text, one step a line; stable.
std::string print(const Plan& plan);

/// The plan's identity: a hash of its text, as 16 hexadecimal digits.
std::string plan_hash(const Plan& plan);

}  // namespace ridge
