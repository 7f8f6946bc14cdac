// Which buffers an entry needs and when: what a plan places, and what recompute counts.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/compile/memory/memory.h"
#include "ridge/compile/memory/reorder.h"

namespace ridge {

struct ArenaOptions {
  /// Off: every value has bytes of its own, from the first step to the last.
  bool reuse = true;
  /// Data that have_own_bytes() get no buffer: they lie in memory of the caller.
  bool binds = false;
  /// Whether the input of that name lives in the state.
  std::function<bool(std::string_view)> in_state;
  /// Bytes that the kernel of a node needs beside its operands.
  std::function<int64_t(const Node&)> workspace_bytes;
};

/// The buffers of one graph, whose updates have been separated (aliases.h). Step 0 is before the
/// first launch, when inputs are written; launch i of the order is step i + 1; the step after the
/// last is when outputs are read.
class Arena {
 public:
  static constexpr int kNone = -1;

  Arena(const Graph& graph, LaunchOrder order, const ArenaOptions& options);

  const LaunchOrder& order() const { return order_; }
  const std::vector<Lifetime>& lifetimes() const { return lifetimes_; }
  /// The buffer that holds the value; kNone where that is the state, or memory of the caller.
  int buffer(Value value) const;
  /// The entry of the state that holds it; empty where that is a buffer.
  std::string_view state(Value value) const;
  /// The buffer that launch i of the order works in; kNone where it needs none.
  int workspace(size_t launch) const { return workspaces_[launch]; }
  /// The value whose bytes the value has.
  Value root(Value value) const;
  /// Whether one input or output alone, and it whole, has the bytes of the value (a root): it may
  /// lie anywhere.
  bool has_own_bytes(Value value) const;
  /// The last step that reads the value (a root); `otherwise` where none does.
  int last_use(Value value, int otherwise) const;
  int end_step() const { return static_cast<int>(order_.size()) + 1; }

 private:
  /// The storage of a value: a buffer, the state under a name, or else memory of the caller.
  struct Home {
    int buffer = kNone;
    std::string_view state = {};
  };
  using Results = std::vector<Home>;

  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  void find_uses(const Graph& graph);
  void place_inputs(const Graph& graph);
  void place_results(const Node& node, int step);
  Home place_result(Value value, int step);
  int reusable_operand(Value value, int step) const;
  bool may_overwrite(Value value, int buffer_index) const;
  int add_buffer(Lifetime life);
  const Home& home(Value value) const;

  const ArenaOptions* options_;
  LaunchOrder order_;
  std::vector<Value> roots_;
  std::vector<std::vector<int>> last_use_;              ///< By node id and result; -1: none.
  std::vector<std::vector<int>> data_;                  ///< How many inputs and outputs lie there.
  std::vector<std::vector<std::string_view>> updates_;  ///< The input that a result takes over.
  std::vector<Results> homes_;
  std::vector<int> workspaces_;
  std::vector<Lifetime> lifetimes_;
};

/// The arenas of schedule()'s order and of what reorder() makes of it, by rising largest live set;
/// with `reuse` off of the first alone. `graph` and `options` must outlive them.
std::vector<Arena> arenas(const Graph& graph, const ArenaOptions& options);

struct PlacedArena {
  Arena arena;
  Layout layout;
};

/// The one of arenas() that needs least bytes when it is laid out, or one that is close to it.
PlacedArena place_arena(const Graph& graph, const ArenaOptions& options);

}  // namespace ridge
