#include "ridge/compile/plan.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "ridge/base/clock.h"
#include "ridge/compile/memory/aliases.h"
#include "ridge/compile/memory/arena.h"
#include "ridge/compile/memory/memory.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

/// The place of an operand's packed copy; nothing where it cannot have one.
using FindPacked = std::function<std::optional<Place>(Value, const PackedOperand&)>;

// The kernel of a node; it does not depend on the order of the launches.
struct Kernel {
  size_t choice = 0;
  std::string choice_name = {};
  std::map<size_t, Place> packed = {};  ///< Places of packed operands, by number of the input.
  int64_t workspace_bytes = 0;
};

// All operands that the kernel wants packed, or none of them.
std::map<size_t, Place> packed_operands(const Node& node,
                                        size_t choice,
                                        const Backend& backend,
                                        const FindPacked& find) {
  std::map<size_t, Place> places;
  if (find == nullptr) return places;
  for (const PackedOperand& operand : backend.packed_operands(node, choice)) {
    const std::optional<Place> place = find(node.inputs.at(operand.input), operand);
    if (!place) return {};
    places[operand.input] = *place;
  }
  return places;
}

Kernel choose_kernel(const Node& node,
                     Backend& backend,
                     const PlanOptions& options,
                     const FindPacked& find_packed = nullptr) {
  const int64_t start = now_ns();
  const std::vector<Choice> choices = backend.candidates(node);
  check(!choices.empty(),
        "[{}] device '{}' has no kernel for {}, at site '{}'",
        node.op->name(),
        backend.name(),
        to_string(node.outputs[0]),
        node.site.name);
  Kernel kernel{.choice = options.choose ? options.choose(node, choices) : 0};
  kernel.choice_name = choices.at(kernel.choice).name;
  kernel.packed = packed_operands(node, kernel.choice, backend, find_packed);
  const auto instance = kernel.packed.empty() ? backend.instantiate(node, kernel.choice)
                                              : backend.instantiate_packed(node, kernel.choice);
  kernel.workspace_bytes = static_cast<int64_t>(instance->workspace_bytes());
  if (options.choosing_ns != nullptr) *options.choosing_ns += now_ns() - start;
  return kernel;
}

class EntryPlanner {
 public:
  EntryPlanner(const Graph& graph,
               const std::vector<PlanSlot>& state,
               Backend& backend,
               const PlanOptions& options,
               FindPacked find_packed = nullptr)
      : graph_(graph),
        backend_(backend),
        options_(options),
        find_packed_(std::move(find_packed)),
        kernels_(graph.nodes().size()) {
    for (const PlanSlot& slot : state) state_.emplace(slot.name, slot.place);
  }

  EntryPlan run() {
    plan_.name = graph_.name();
    const ArenaOptions options{
        .reuse = options_.reuse,
        .binds = options_.binds,
        .in_state = [this](std::string_view name) { return state_.contains(name); },
        .workspace_bytes = [this](const Node& node) { return kernel(node).workspace_bytes; }};
    const auto [arena, layout] = place_arena(graph_, options);
    plan_.peak_bytes = layout.peak;
    plan_.lower_bound_bytes = layout.lower_bound;
    for (size_t i = 0; i < arena.order().size(); ++i) add_step(arena, layout, i);
    fill_slots(arena, layout);
    return std::move(plan_);
  }

 private:
  const Kernel& kernel(const Node& node) {
    std::optional<Kernel>& known = kernels_[static_cast<size_t>(node.id)];
    if (!known) known = choose_kernel(node, backend_, options_, find_packed_);
    return *known;
  }

  Place place_of(const Arena& arena, const Layout& layout, Value value) const {
    const int64_t bytes = value.type().bytes();
    if (const int buffer = arena.buffer(value); buffer != Arena::kNone)
      return {Region::kArena, layout.offsets[static_cast<size_t>(buffer)], bytes};
    const std::string_view name = arena.state(value);
    if (name.empty()) return {Region::kBound, 0, bytes};
    return {Region::kState, state_.find(name)->second.offset, bytes};
  }

  void add_step(const Arena& arena, const Layout& layout, size_t launch) {
    const Node& node = *arena.order()[launch];
    PlanStep step{.node = node.id,
                  .op = std::string(node.op->name()),
                  .site = node.site.name,
                  .choice = kernel(node).choice,
                  .choice_name = kernel(node).choice_name,
                  .is_packed = !kernel(node).packed.empty(),
                  .inputs = {},
                  .outputs = {},
                  .workspace = {}};
    for (const Value& input : node.inputs) step.inputs.push_back(place_of(arena, layout, input));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      step.outputs.push_back(
          place_of(arena, layout, {const_cast<Node*>(&node), static_cast<int>(i)}));
    if (const int workspace = arena.workspace(launch); workspace != Arena::kNone)
      step.workspace = {Region::kArena,
                        layout.offsets[static_cast<size_t>(workspace)],
                        kernel(node).workspace_bytes};
    for (const auto& [input, place] : kernel(node).packed) step.inputs[input] = place;
    plan_.steps.push_back(std::move(step));
  }

  void fill_slots(const Arena& arena, const Layout& layout) {
    int64_t staging = 0;
    for (Node* node : graph_.inputs()) {
      const std::string& name = node->op_as<Input>().input_name;
      if (state_.contains(name)) continue;
      plan_.inputs.push_back({name,
                              node->outputs[0],
                              place_of(arena, layout, {node, 0}),
                              staging,
                              uses_of(arena, {node, 0})});
      staging += aligned_bytes(node->outputs[0].bytes());
    }
    for (const Output& output : graph_.outputs())
      if (output.updates.empty())
        plan_.outputs.push_back({output.name,
                                 output.value.type(),
                                 place_of(arena, layout, output.value),
                                 0,
                                 uses_of(arena, arena.root(output.value))});
  }

  std::vector<LaunchOperand> uses_of(const Arena& arena, Value root) const {
    std::vector<LaunchOperand> uses;
    if (!arena.has_own_bytes(root)) return uses;
    const auto has_bytes = [&](Value value) { return arena.root(value) == root; };
    for (size_t step = 0; step < arena.order().size(); ++step) {
      const Node& node = *arena.order()[step];
      for (size_t i = 0; i < node.inputs.size(); ++i)
        if (has_bytes(node.inputs[i])) uses.push_back({step, i, false});
      if (&node == root.node) uses.push_back({step, static_cast<size_t>(root.index), true});
    }
    return uses;
  }

  const Graph& graph_;
  Backend& backend_;
  const PlanOptions& options_;
  FindPacked find_packed_;
  std::map<std::string, Place, std::less<>> state_;
  std::vector<std::optional<Kernel>> kernels_;  ///< By node id.
  EntryPlan plan_;
};

void check_entry(const Graph& graph,
                 const std::vector<StateEntry>& entries,
                 const std::vector<PlanSlot>& state) {
  std::map<std::string, const PlanSlot*> slots;
  for (const PlanSlot& slot : state) slots.emplace(slot.name, &slot);
  for (const Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    const auto slot = slots.find(name);
    if (slot == slots.end()) continue;
    check(slot->second->type == node->outputs[0],
          "entry '{}' reads state '{}' as another type; got {}, expected {}",
          graph.name(),
          name,
          to_string(node->outputs[0]),
          to_string(slot->second->type));
  }
  for (const Output& output : graph.outputs())
    check(output.updates.empty() || slots.contains(output.updates),
          "entry '{}' updates input '{}', which is not part of the state",
          graph.name(),
          output.updates);
  for (const StateEntry& entry : entries)
    for (const Output& output : graph.outputs())
      check(entry.derivation == nullptr || output.updates != entry.name,
            "entry '{}' updates state '{}', which is derived from others",
            graph.name(),
            entry.name);
}

std::set<size_t> slots_read(const EntryPlan& entry, const std::vector<PlanSlot>& state) {
  std::set<size_t> slots;
  const auto add = [&](const Place& place) {
    if (place.region == Region::kState) slots.insert(slot_at(state, place));
  };
  for (const PlanStep& step : entry.steps)
    for (const Place& place : step.inputs) add(place);
  for (const PlanSlot& output : entry.outputs) add(output.place);
  return slots;
}

// The derivations of those slots, and of what they are made from.
std::vector<size_t> derivations_of(std::set<size_t> slots,
                                   const std::vector<DerivationPlan>& derivations) {
  std::vector<size_t> needed;
  for (size_t i = derivations.size(); i-- > 0;) {
    if (!slots.contains(derivations[i].slot)) continue;
    needed.push_back(i);
    slots.insert(derivations[i].sources.begin(), derivations[i].sources.end());
  }
  std::reverse(needed.begin(), needed.end());
  return needed;
}

DerivationPlan plan_derivation(size_t number,
                               const StateEntry& made,
                               const std::vector<PlanSlot>& slots,
                               Backend& backend,
                               PlanOptions options) {
  // Several programs share the result, so that no choice of one of them counts.
  options.choose = [](const Node&, const std::vector<Choice>& choices) {
    return same_bits_choice(choices);
  };
  Graph graph = made.derivation->clone();
  DerivationPlan plan{.slot = number, .sources = {}, .graph = {}, .entry = {}};
  for (const Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    if (name == made.name) continue;
    const PlanSlot* const source = find_slot(slots, name);
    check_internal(source != nullptr && source < &slots[number],
                   "'{}' is derived from '{}', which is no entry before it",
                   made.name,
                   name);
    plan.sources.push_back(static_cast<size_t>(source - slots.data()));
  }
  check_internal(!plan.sources.empty(), "'{}' is derived from nothing", made.name);
  check_internal(graph.outputs().size() == 1 && graph.outputs()[0].updates == made.name,
                 "the derivation of '{}' does not update it alone",
                 made.name);
  check_entry(graph, {}, slots);
  separate_updates(graph, options.reuse);
  plan.entry = EntryPlanner(graph, slots, backend, options).run();
  const std::set<size_t> read = slots_read(plan.entry, slots);
  check_internal(!read.contains(number), "the derivation of '{}' reads it", made.name);
  plan.graph = std::make_shared<const Graph>(std::move(graph));
  return plan;
}

}  // namespace

const PlanSlot* find_slot(const std::vector<PlanSlot>& slots, std::string_view name) {
  const auto at = std::find_if(
      slots.begin(), slots.end(), [&](const PlanSlot& slot) { return slot.name == name; });
  return at == slots.end() ? nullptr : &*at;
}

size_t slot_at(const std::vector<PlanSlot>& state, const Place& place) {
  const auto behind = std::upper_bound(
      state.begin(), state.end(), place.offset, [](int64_t offset, const PlanSlot& slot) {
        return offset < slot.place.offset;
      });
  return static_cast<size_t>(behind - state.begin()) - 1;
}

int64_t state_bytes(const std::vector<StateEntry>& state) {
  int64_t bytes = 0;
  for (const StateEntry& entry : state) bytes += aligned_bytes(entry.type.bytes());
  return bytes;
}

int64_t staging_bytes(const ProgramGraphs& graphs, const Backend& backend) {
  if (!backend.is_asynchronous()) return 0;
  std::set<std::string, std::less<>> state;
  for (const StateEntry& entry : graphs.state) state.insert(entry.name);
  int64_t most = 0;
  for (const Graph& graph : graphs.entries) {
    int64_t bytes = 0;
    for (const Node* node : graph.inputs())
      if (!state.contains(node->op_as<Input>().input_name))
        bytes += aligned_bytes(node->outputs[0].bytes());
    most = std::max(most, bytes);
  }
  return 2 * most;
}

ArenaOptions arena_options(const std::vector<StateEntry>& state,
                           Backend& backend,
                           const PlanOptions& options) {
  std::set<std::string, std::less<>> names;
  for (const StateEntry& entry : state) names.insert(entry.name);
  // Recomputed nodes have the op and the site of the first: kernels are asked once. The op is held,
  // so that no other one gets its address.
  using Known = std::map<std::pair<std::shared_ptr<const Op>, std::string>, int64_t>;
  return {.reuse = options.reuse,
          .binds = options.binds,
          .in_state = [names](std::string_view name) { return names.contains(name); },
          .workspace_bytes =
              [&backend, &options, known = std::make_shared<Known>()](const Node& node) {
                const auto [at, is_new] = known->try_emplace({node.op, node.site.name}, 0);
                if (is_new) at->second = choose_kernel(node, backend, options).workspace_bytes;
                return at->second;
              }};
}

namespace {

class Planner {
 public:
  Planner(ProgramGraphs& graphs, Backend& backend, const PlanOptions& options)
      : graphs_(graphs), backend_(backend), options_(options) {
    plan_.device = backend.name();
    plan_.binds = options.binds;
    for (const Graph& graph : graphs.entries)
      for (const Output& output : graph.outputs()) updated_.insert(output.updates);
  }

  Plan run() {
    std::set<std::string> names;
    for (size_t i = 0; i < graphs_.state.size(); ++i) {
      const std::string& name = graphs_.state[i].name;
      check(names.insert(name).second, "two state entries are named '{}'", name);
      add_slot(graphs_.state[i]);
    }
    for (size_t i = 0; i < graphs_.state.size(); ++i)
      if (graphs_.state[i].derivation != nullptr) add_derivation(i);
    names.clear();
    for (Graph& graph : graphs_.entries) {
      check(names.insert(graph.name()).second, "two entries are named '{}'", graph.name());
      add_entry(graph);
    }
    std::set<size_t> read;
    for (EntryPlan& entry : plan_.entries) {
      const std::set<size_t> slots = slots_read(entry, plan_.state);
      read.insert(slots.begin(), slots.end());
      entry.derived = derivations_of(slots, plan_.derivations);
    }
    count_constants(read);
    plan_.staging_bytes = staging_bytes(graphs_, backend_);
    return std::move(plan_);
  }

 private:
  void add_slot(const StateEntry& entry) {
    const int64_t bytes = entry.type.bytes();
    plan_.state.push_back({entry.name, entry.type, {Region::kState, plan_.state_bytes, bytes}, 0});
    plan_.roles.push_back(entry.role);
    plan_.state_bytes += aligned_bytes(bytes);
  }

  void count_constants(const std::set<size_t>& read) {
    const auto is_copied = [&](const StateEntry& entry) {
      return !entry.constant->perm.empty() ||
             !backend_.can_read_at(entry.constant->bytes.data(), entry.type.dtype);
    };
    for (size_t i = 0; i < graphs_.state.size(); ++i) {
      const StateEntry& entry = graphs_.state[i];
      if (entry.constant == nullptr) continue;
      const int64_t bytes = aligned_bytes(entry.type.bytes());
      if (!read.contains(i)) {
        plan_.passing_bytes += bytes;
        continue;
      }
      plan_.constants.push_back(i);
      if (!is_copied(entry)) plan_.lent_bytes += bytes;
    }
    for (const DerivationPlan& derivation : plan_.derivations) {
      if (derivation.kernel != nullptr) continue;
      int64_t bytes = 0;
      for (const size_t source : derivation.sources)
        if (const StateEntry& entry = graphs_.state[source];
            entry.constant != nullptr && !read.contains(source) && is_copied(entry))
          bytes += aligned_bytes(entry.type.bytes());
      plan_.passing_peak_bytes = std::max(plan_.passing_peak_bytes, bytes);
    }
  }

  void add_derivation(size_t number) {
    plan_.derivations.push_back(
        plan_derivation(number, graphs_.state[number], plan_.state, backend_, options_));
    plan_.derivation_bytes =
        std::max(plan_.derivation_bytes, plan_.derivations.back().entry.peak_bytes);
  }

  void add_entry(Graph& graph) {
    check_entry(graph, graphs_.state, plan_.state);
    separate_updates(graph, options_.reuse);
    FindPacked find = nullptr;
    if (options_.packs)
      find = [this](Value value, const PackedOperand& operand) { return packed(value, operand); };
    plan_.entries.push_back(EntryPlanner(graph, plan_.state, backend_, options_, find).run());
    const EntryPlan& entry = plan_.entries.back();
    plan_.arena_bytes = std::max(plan_.arena_bytes, entry.peak_bytes);
    plan_.arena_lower_bound_bytes =
        std::max(plan_.arena_lower_bound_bytes, entry.lower_bound_bytes);
  }

  // The packed copy of a parameter that no entry updates; made the first time. That of one that is
  // read under another shape has this in its name.
  std::optional<Place> packed(Value value, const PackedOperand& operand) {
    const Shape shape = value.shape();
    while (operand.may_be_reshaped && value.node->is<Reshape>()) value = value.node->inputs[0];
    if (!value.node->is<Input>()) return std::nullopt;
    const std::string& source = value.node->op_as<Input>().input_name;
    const auto entry = std::find_if(graphs_.state.begin(),
                                    graphs_.state.end(),
                                    [&](const StateEntry& each) { return each.name == source; });
    if (entry == graphs_.state.end() || entry->role != StateRole::kParameter ||
        entry->derivation != nullptr || updated_.contains(source) ||
        (operand.only_constants && entry->constant == nullptr))
      return std::nullopt;
    const std::string name = fmt::format(
        "{}:{}{}", source, operand.layout, value.shape() == shape ? "" : ":" + to_string(shape));
    if (const PlanSlot* slot = find_slot(plan_.state, name); slot != nullptr) return slot->place;
    if (operand.pack == nullptr) return bytes_of(*entry, name);
    Graph graph("pack " + name);
    const Value made = operand.pack(reshape(input(graph, source, entry->type), shape));
    input(graph, name, made.type());
    graph.add_output("packed", made, name);
    std::shared_ptr<const NodeKernel> kernel = kernel_for(operand, *entry);
    const auto number = static_cast<size_t>(entry - graphs_.state.begin());
    graphs_.state.push_back({name,
                             made.type(),
                             StateRole::kPacked,
                             {},
                             std::make_shared<const Graph>(std::move(graph))});
    add_slot(graphs_.state.back());
    if (kernel == nullptr)
      add_derivation(graphs_.state.size() - 1);
    else
      add_derivation(number, std::move(kernel));
    return plan_.state.back().place;
  }

  // A constant of the same elements that is read at any address.
  std::optional<Place> bytes_of(const StateEntry& source, const std::string& name) {
    if (source.constant == nullptr || !source.constant->is_as_it_lies()) return std::nullopt;
    StateConstant constant = *source.constant;
    constant.is_bytes = true;
    StateEntry entry = source;
    entry.name = name;
    entry.constant = std::make_shared<const StateConstant>(std::move(constant));
    graphs_.state.push_back(std::move(entry));
    add_slot(graphs_.state.back());
    return plan_.state.back().place;
  }

  // The last entry is packed by a kernel.
  void add_derivation(size_t source, std::shared_ptr<const NodeKernel> kernel) {
    DerivationPlan plan{.slot = graphs_.state.size() - 1,
                        .sources = {source},
                        .graph = graphs_.state.back().derivation,
                        .entry = {},
                        .kernel = std::move(kernel)};
    plan.entry.name = plan.graph->name();
    plan_.derivations.push_back(std::move(plan));
  }

  static std::unique_ptr<NodeKernel> kernel_for(const PackedOperand& operand,
                                                const StateEntry& source) {
    if (operand.kernel == nullptr) return nullptr;
    LyingElements from{source.type};
    if (source.constant != nullptr) {
      from.perm = source.constant->perm;
      from.scale = source.constant->scale;
      if (!from.perm.empty()) from.lying.shape = source.constant->lying;
    }
    return operand.kernel(from);
  }

  ProgramGraphs& graphs_;
  Backend& backend_;
  const PlanOptions& options_;
  std::set<std::string, std::less<>> updated_;
  Plan plan_;
};

}  // namespace

Plan make_plan(ProgramGraphs& graphs, Backend& backend, const PlanOptions& options) {
  return Planner(graphs, backend, options).run();
}

}  // namespace ridge
