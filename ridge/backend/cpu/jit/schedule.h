// The order in which a program's nodes, stores and reductions are computed, and who reads what.
#pragma once

#include <vector>

#include "ridge/backend/cpu/jit/program.h"

namespace ridge::cpu::jit {

struct Step {
  enum Kind : uint8_t { kNode, kStore, kReduce };
  Kind kind;
  int index;
};

struct Schedule {
  std::vector<Step> steps;
  std::vector<std::vector<int>> reads;  ///< By node: the steps that read it, in order.

  /// The first step from `at` on that reads the node; the number of steps where none does.
  int next_read(int node, int at) const;
};

/// What is the same for all elements: computed once, before the loop. Constants are no steps.
Schedule schedule_invariants(const Program& program);
/// The same, and then the stores, of a program that computes nothing else.
Schedule schedule_singles(const Program& program);
/// All that is not the same for all elements.
Schedule schedule_body(const Program& program);

/// Most values of one element that are alive at a time: computed, and still to be read after the
/// step.
int most_alive(const Program& program, const Schedule& body);

/// Nodes that a result needs.
std::vector<bool> needed_nodes(const Program& program);

}  // namespace ridge::cpu::jit
