#include "ridge/compile/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "ridge/compile/aliases.h"
#include "ridge/compile/memory.h"
#include "ridge/compile/schedule.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// A buffer under construction: bytes of the state, or of the arena for a stretch of steps. Step 0
// is before the first launch, when inputs are written; the one after the last is when outputs are
// read.
struct Buffer {
  Region region = Region::kArena;
  int64_t state_offset = 0;
  Lifetime life;
};

class EntryPlanner {
 public:
  EntryPlanner(const Graph& graph,
               const std::vector<PlanSlot>& state,
               Backend& backend,
               const PlanOptions& options)
      : graph_(graph),
        backend_(backend),
        options_(options),
        roots_(byte_roots(graph, options.reuse)),
        buffer_of_(graph.nodes().size()) {
    for (const PlanSlot& slot : state) state_.emplace(slot.name, &slot);
    for (const Node* node : schedule(graph, roots_))
      if (is_launched(*node)) order_.push_back(node);
  }

  EntryPlan run() {
    plan_.name = graph_.name();
    find_last_uses();
    find_updates();
    place_inputs();
    for (size_t i = 0; i < order_.size(); ++i) add_step(*order_[i], static_cast<int>(i) + 1);
    lay_out_arena();
    for (size_t i = 0; i < order_.size(); ++i) fill_places(*order_[i], plan_.steps[i], i);
    fill_slots();
    return std::move(plan_);
  }

 private:
  static size_t id(const Node& node) { return static_cast<size_t>(node.id); }
  bool is_launched(const Node& node) const { return roots_[id(node)].node == &node; }
  Value root(Value value) const { return value.index == 0 ? roots_[id(*value.node)] : value; }
  int end_step() const { return static_cast<int>(order_.size()) + 1; }

  using Key = std::pair<int, int>;  // node id and index
  static Key key(Value value) { return {value.node->id, value.index}; }

  void find_last_uses() {
    for (size_t i = 0; i < order_.size(); ++i)
      for (const Value& input : order_[i]->inputs)
        last_use_[key(root(input))] = static_cast<int>(i) + 1;
    for (const Output& output : graph_.outputs())
      if (output.updates.empty()) last_use_[key(root(output.value))] = end_step();
  }

  void find_updates() {
    for (const Output& output : graph_.outputs())
      if (!output.updates.empty()) updates_[key(root(output.value))] = state_.at(output.updates);
  }

  int last_use(Value value, int otherwise) const {
    const auto found = last_use_.find(key(value));
    return found == last_use_.end() ? otherwise : std::max(found->second, otherwise);
  }

  size_t add_buffer(Buffer buffer) {
    buffers_.push_back(buffer);
    return buffers_.size() - 1;
  }

  size_t state_buffer(const PlanSlot& slot) {
    return add_buffer({Region::kState, slot.place.offset, {}});
  }

  void place_inputs() {
    for (const Node* node : graph_.inputs()) {
      const std::string& name = node->op_as<Input>().input_name;
      const auto slot = state_.find(name);
      auto& buffers = buffer_of_[id(*node)];
      if (slot != state_.end()) {
        buffers.push_back(state_buffer(*slot->second));
        continue;
      }
      const Value value{const_cast<Node*>(node), 0};
      const int end = options_.reuse ? last_use(value, 0) : end_step();
      buffers.push_back(add_buffer({Region::kArena, 0, {node->outputs[0].bytes(), 0, end}}));
    }
  }

  // The buffer of an operand that ends here and that element i of the result may overwrite.
  std::optional<size_t> reusable_operand(Value value, int step) {
    const Node& node = *value.node;
    if (!options_.reuse || !node.op->traits().elementwise || node.is<Copy>()) return std::nullopt;
    for (const Value& input : node.inputs) {
      const Value from = root(input);
      if (input.type().elements() != node.outputs[0].elements() ||
          input.type().bytes() != value.type().bytes())
        continue;
      const size_t index = buffer_of_[id(*from.node)][static_cast<size_t>(from.index)];
      if (buffers_[index].region == Region::kArena && buffers_[index].life.end == step)
        return index;
    }
    return std::nullopt;
  }

  size_t place_result(Value value, int step) {
    if (const auto update = updates_.find(key(value)); update != updates_.end())
      return state_buffer(*update->second);
    const int end = options_.reuse ? last_use(value, step) : end_step();
    if (const auto shared = reusable_operand(value, step)) {
      buffers_[*shared].life.end = end;
      return *shared;
    }
    return add_buffer({Region::kArena, 0, {value.type().bytes(), step, end}});
  }

  void add_step(const Node& node, int step) {
    auto& results = buffer_of_[id(node)];
    for (size_t i = 0; i < node.outputs.size(); ++i)
      results.push_back(place_result({const_cast<Node*>(&node), static_cast<int>(i)}, step));
    const std::vector<Choice> choices = backend_.candidates(node);
    check_internal(!choices.empty(),
                   "device '{}' has no kernel for node '{}'",
                   backend_.name(),
                   node.site.name);
    const size_t choice = options_.choose ? options_.choose(node, choices) : 0;
    const auto bytes = static_cast<int64_t>(backend_.instantiate(node, choice)->workspace_bytes());
    workspaces_.push_back(bytes == 0 ? kNone
                                     : add_buffer({Region::kArena, 0, {bytes, step, step}}));
    plan_.steps.push_back({.node = node.id,
                           .op = std::string(node.op->name()),
                           .site = node.site.name,
                           .choice = choice,
                           .choice_name = choices.at(choice).name,
                           .inputs = {},
                           .outputs = {},
                           .workspace = {}});
  }

  void lay_out_arena() {
    std::vector<Lifetime> lifetimes;
    std::vector<size_t> which;
    for (size_t i = 0; i < buffers_.size(); ++i) {
      if (buffers_[i].region != Region::kArena) continue;
      lifetimes.push_back(buffers_[i].life);
      which.push_back(i);
    }
    const Layout layout = lay_out(lifetimes, options_.reuse);
    offsets_.resize(buffers_.size());
    for (size_t i = 0; i < which.size(); ++i) offsets_[which[i]] = layout.offsets[i];
    plan_.peak_bytes = layout.peak;
    plan_.lower_bound_bytes = layout.lower_bound;
  }

  Place place_of_buffer(size_t index, int64_t bytes) const {
    const Buffer& buffer = buffers_[index];
    const bool is_state = buffer.region == Region::kState;
    return {buffer.region, is_state ? buffer.state_offset : offsets_[index], bytes};
  }

  Place place_of(Value value) const {
    const Value from = root(value);
    return place_of_buffer(buffer_of_[id(*from.node)][static_cast<size_t>(from.index)],
                           value.type().bytes());
  }

  void fill_places(const Node& node, PlanStep& step, size_t index) {
    for (const Value& input : node.inputs) step.inputs.push_back(place_of(input));
    for (size_t i = 0; i < node.outputs.size(); ++i)
      step.outputs.push_back(place_of({const_cast<Node*>(&node), static_cast<int>(i)}));
    if (const size_t workspace = workspaces_[index]; workspace != kNone)
      step.workspace = place_of_buffer(workspace, buffers_[workspace].life.bytes);
  }

  void fill_slots() {
    for (const Node* node : graph_.inputs()) {
      const std::string& name = node->op_as<Input>().input_name;
      if (!state_.contains(name))
        plan_.inputs.push_back({name, node->outputs[0], place_of({const_cast<Node*>(node), 0})});
    }
    for (const Output& output : graph_.outputs())
      if (output.updates.empty())
        plan_.outputs.push_back({output.name, output.value.type(), place_of(output.value)});
  }

  static constexpr size_t kNone = static_cast<size_t>(-1);

  const Graph& graph_;
  Backend& backend_;
  const PlanOptions& options_;
  std::map<std::string, const PlanSlot*> state_;
  std::vector<Value> roots_;
  std::vector<const Node*> order_;
  std::map<Key, int> last_use_;
  std::map<Key, const PlanSlot*> updates_;
  std::vector<Buffer> buffers_;
  std::vector<std::vector<size_t>> buffer_of_;  ///< By node id and result.
  std::vector<size_t> workspaces_;              ///< By step.
  std::vector<int64_t> offsets_;                ///< By buffer, for those in the arena.
  EntryPlan plan_;
};

void check_entry(const Graph& graph, const std::vector<PlanSlot>& state) {
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
}

}  // namespace

Plan make_plan(ProgramGraphs& graphs, Backend& backend, const PlanOptions& options) {
  Plan plan;
  plan.device = backend.name();
  std::set<std::string> names;
  for (const StateEntry& entry : graphs.state) {
    check(names.insert(entry.name).second, "two state entries are named '{}'", entry.name);
    const int64_t bytes = entry.type.bytes();
    plan.state.push_back({entry.name, entry.type, {Region::kState, plan.state_bytes, bytes}});
    plan.roles.push_back(entry.role);
    plan.state_bytes += aligned_bytes(bytes);
  }
  names.clear();
  for (Graph& graph : graphs.entries) {
    check(names.insert(graph.name()).second, "two entries are named '{}'", graph.name());
    check_entry(graph, plan.state);
    separate_updates(graph, options.reuse);
    plan.entries.push_back(EntryPlanner(graph, plan.state, backend, options).run());
    plan.arena_bytes = std::max(plan.arena_bytes, plan.entries.back().peak_bytes);
    plan.arena_lower_bound_bytes =
        std::max(plan.arena_lower_bound_bytes, plan.entries.back().lower_bound_bytes);
  }
  return plan;
}

}  // namespace ridge
