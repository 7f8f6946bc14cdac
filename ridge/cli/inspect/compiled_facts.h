// Facts about a compiled program, of whatever it was compiled: its entries, and where their memory
// goes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ridge/graph/summary.h"
#include "ridge/run/program.h"
#include "ridge/run/tuner.h"

namespace ridge {

/// A buffer that is live where an entry needs the most memory.
struct PeakBuffer {
  std::string site = {};  ///< Site of the node that made it, or "input NAME".
  std::string op = {};    ///< The op that made it, or "input", or "OP workspace".
  std::string type = {};  ///< Empty for a workspace.
  int64_t offset = 0, bytes = 0;
  int begin = 0, end = 0;  ///< Steps, as in LiveRange.
};

struct EntryFacts {
  std::string name;
  size_t nodes = 0, launches = 0;
  GraphSummary summary;
  int64_t peak_bytes = 0, lower_bound_bytes = 0;  ///< Bytes of the arena.
  std::vector<int64_t> live = {};                 ///< Bytes at every step.
  int peak_step = 0;                              ///< The first with the most live bytes.
  std::vector<PeakBuffer> at_peak = {};           ///< Largest first.
  std::vector<NodeTimes> times = {};              ///< By step; without seconds where not timed.
  std::vector<bool> other_bits = {};              ///< By step: has_other_bits() of the pick.
};

struct CompiledFacts {
  std::vector<std::string> notes = {};  ///< Notes of the backend on what it does without.
  CompiledProgram program = {};
  std::vector<EntryFacts> entries = {};
};

/// The times of the candidates of a node; null where none was timed.
using FindTimes = std::function<const NodeTimes*(const Node&)>;

/// Fills the entries from the program. `find_times` may be null.
void add_entries(CompiledFacts& facts, const Backend& backend, const FindTimes& find_times);

struct NodeCost {
  std::string site, op, type;  ///< Type of the first result.
  Cost cost;
};

/// The launches of an entry by falling FLOPs, then bytes, then place.
std::vector<NodeCost> nodes_by_cost(const CompiledFacts& facts, size_t entry);

/// The entry that needs the largest arena.
const EntryFacts& largest_entry(const CompiledFacts& facts);

/// Bytes of the state by role; 0 where a role has no buffer.
int64_t role_bytes(const Plan& plan, StateRole role);
inline constexpr StateRole kRoles[] = {StateRole::kParameter,
                                       StateRole::kOptimizer,
                                       StateRole::kGradient,
                                       StateRole::kStatistic,
                                       StateRole::kPacked,
                                       StateRole::kScaler};

}  // namespace ridge
