#include "ridge/backend/cpu/jit/schedule.h"

#include <algorithm>

namespace ridge::cpu::jit {
namespace {

void find_reads(const Program& program, Schedule& schedule) {
  schedule.reads.resize(program.nodes.size());
  const auto read = [&](int node, size_t step) {
    auto& reads = schedule.reads[static_cast<size_t>(node)];
    if (reads.empty() || reads.back() != static_cast<int>(step))
      reads.push_back(static_cast<int>(step));
  };
  for (size_t i = 0; i < schedule.steps.size(); ++i) {
    const Step& step = schedule.steps[i];
    const auto index = static_cast<size_t>(step.index);
    if (step.kind == Step::kStore) {
      read(program.stores[index].node, i);
    } else if (step.kind == Step::kReduce) {
      read(program.reductions[index].node, i);
    } else {
      for (const int operand : program.nodes[index].operands)
        if (operand >= 0) read(operand, i);
    }
  }
}

}  // namespace

int Schedule::next_read(int node, int at) const {
  const auto& all = reads[static_cast<size_t>(node)];
  const auto next = std::lower_bound(all.begin(), all.end(), at);
  return next == all.end() ? static_cast<int>(steps.size()) : *next;
}

std::vector<bool> needed_nodes(const Program& program) {
  std::vector<bool> needed(program.nodes.size(), false);
  for (const Stored& each : program.stores) needed[static_cast<size_t>(each.node)] = true;
  for (const Reduced& each : program.reductions) needed[static_cast<size_t>(each.node)] = true;
  for (size_t i = program.nodes.size(); i-- > 0;) {
    if (!needed[i]) continue;
    for (const int operand : program.nodes[i].operands)
      if (operand >= 0) needed[static_cast<size_t>(operand)] = true;
  }
  return needed;
}

int most_alive(const Program& program, const Schedule& body) {
  std::vector<int> ends(body.steps.size(), 0);
  for (size_t i = 0; i < program.nodes.size(); ++i)
    if (!program.nodes[i].invariant && !body.reads[i].empty())
      ++ends[static_cast<size_t>(body.reads[i].back())];
  int alive = 0, most = 0;
  for (size_t at = 0; at < body.steps.size(); ++at) {
    alive += (body.steps[at].kind == Step::kNode ? 1 : 0) - ends[at];
    most = std::max(most, alive);
  }
  return most;
}

Schedule schedule_invariants(const Program& program) {
  Schedule schedule;
  const std::vector<bool> needed = needed_nodes(program);
  for (size_t i = 0; i < program.nodes.size(); ++i)
    if (needed[i] && program.nodes[i].invariant && program.nodes[i].prim != Prim::kConstant)
      schedule.steps.push_back({Step::kNode, static_cast<int>(i)});
  find_reads(program, schedule);
  return schedule;
}

Schedule schedule_singles(const Program& program) {
  Schedule schedule = schedule_invariants(program);
  for (size_t i = 0; i < program.stores.size(); ++i)
    schedule.steps.push_back({Step::kStore, static_cast<int>(i)});
  schedule.reads.clear();
  find_reads(program, schedule);
  return schedule;
}

Schedule schedule_body(const Program& program) {
  const std::vector<bool> needed = needed_nodes(program);
  const auto is_step = [&](size_t i) { return needed[i] && !program.nodes[i].invariant; };
  size_t last_input = 0;
  for (size_t i = 0; i < program.nodes.size(); ++i)
    if (is_step(i) && program.nodes[i].prim == Prim::kInput) last_input = i;
  Schedule schedule;
  // Results may lie over streams: nothing is stored before all of them are read.
  const auto add_results = [&](size_t done) {
    for (size_t k = 0; k < program.reductions.size(); ++k)
      if (program.reductions[k].node == static_cast<int>(done))
        schedule.steps.push_back({Step::kReduce, static_cast<int>(k)});
    if (done < last_input) return;
    for (size_t k = 0; k < program.stores.size(); ++k) {
      const auto node = static_cast<size_t>(program.stores[k].node);
      if (node == done || (done == last_input && node < done))
        schedule.steps.push_back({Step::kStore, static_cast<int>(k)});
    }
  };
  for (size_t i = 0; i < program.nodes.size(); ++i) {
    if (is_step(i)) schedule.steps.push_back({Step::kNode, static_cast<int>(i)});
    add_results(i);
  }
  find_reads(program, schedule);
  return schedule;
}

}  // namespace ridge::cpu::jit
