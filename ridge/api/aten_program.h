// Graphs that torch.compile hands over, compiled and run: what the Python package `ridge.torch`
// stands on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

/// A node of such a graph that cannot be imported, and why.
struct AtenRefusal {
  size_t node = 0;
  std::string reason;
};

/// The nodes of a graph (import/aten/aten_graph.h has the text) that AtenProgram would refuse, each
/// looked at by itself. UserError for a text that is no graph.
std::vector<AtenRefusal> aten_refusals(std::string_view graph);

/// A graph, compiled for the CPU. Any thread may run it at any time, but for moving and destroying
/// it.
class AtenProgram {
 public:
  /// Compiles. `constants` has an address for each input that the text calls one, null for all
  /// others; what lies there stays, and stays as it is until refresh(). UserError where a node
  /// cannot be imported.
  AtenProgram(std::string_view graph, std::vector<const void*> constants);
  ~AtenProgram();
  AtenProgram(AtenProgram&&) noexcept;
  AtenProgram& operator=(AtenProgram&&) noexcept;

  /// For each output its axes from the outermost to the innermost, as it lies in memory.
  const std::vector<std::vector<int64_t>>& orders() const;
  /// Bytes that a run works in, besides inputs and outputs.
  size_t workspace_bytes() const;
  /// Reads each input at its address (those of constants do not count), and writes each output at
  /// its own: as they lie in memory by the text, dense. The workspace has undefined contents before
  /// and after. Outputs and workspace are aligned to 64 bytes; an output that the text writes over
  /// an input has that input's address. UserError for wrong data (an index out of range), with the
  /// node.
  void run(std::span<const void* const> inputs, std::span<void* const> outputs, void* workspace);
  /// Threads that run() works with from here on, in place of the engine's own; null for those. A
  /// team calls task(context) on so many threads, the caller one of them, and returns when all have
  /// ended. Runs that are too short for others to wake up do without.
  using ThreadTeam = void (*)(void (*task)(void* context), void* context, unsigned threads);
  static void use_team(ThreadTeam team);
  /// Has the pages of memory there before a run waits for them; what lies there stays.
  static void make_resident(void* memory, size_t bytes);
  /// True where constants were written since: it looks at a few bytes of each.
  bool is_stale() const;
  /// Reads the constants again at these addresses; at the same ones nothing is compiled. Only one
  /// thread may call it, and is_stale(), at a time.
  void refresh(std::vector<const void*> constants);
  /// The plan as text: a line a kernel.
  std::string plan() const;

 private:
  struct Loaded;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace ridge
