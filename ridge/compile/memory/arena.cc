#include "ridge/compile/memory/arena.h"

#include <algorithm>
#include <optional>

#include "ridge/compile/memory/aliases.h"
#include "ridge/compile/memory/schedule.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

Arena::Arena(const Graph& graph, LaunchOrder order, const ArenaOptions& options)
    : options_(&options),
      order_(std::move(order)),
      roots_(byte_roots(graph, options.reuse)),
      last_use_(graph.nodes().size()),
      data_(graph.nodes().size()),
      updates_(graph.nodes().size()),
      homes_(graph.nodes().size()) {
  find_uses(graph);
  place_inputs(graph);
  for (size_t i = 0; i < order_.size(); ++i) place_results(*order_[i], static_cast<int>(i) + 1);
}

Value Arena::root(Value value) const { return value.index == 0 ? roots_[id(*value.node)] : value; }

const Arena::Home& Arena::home(Value value) const {
  const Value from = root(value);
  return homes_[id(*from.node)].at(static_cast<size_t>(from.index));
}

int Arena::buffer(Value value) const { return home(value).buffer; }
std::string_view Arena::state(Value value) const { return home(value).state; }

bool Arena::has_own_bytes(Value value) const {
  return data_[id(*value.node)][static_cast<size_t>(value.index)] == 1;
}

int Arena::last_use(Value value, int otherwise) const {
  return std::max(last_use_[id(*value.node)][static_cast<size_t>(value.index)], otherwise);
}

void Arena::find_uses(const Graph& graph) {
  for (const auto& node : graph.nodes()) {
    last_use_[id(*node)].resize(node->outputs.size(), kNone);
    data_[id(*node)].resize(node->outputs.size(), node->is<Input>() ? 1 : 0);
    updates_[id(*node)].resize(node->outputs.size());
  }
  const auto used_at = [&](Value value, int step) {
    const Value from = root(value);
    last_use_[id(*from.node)][static_cast<size_t>(from.index)] = step;
  };
  for (size_t i = 0; i < order_.size(); ++i)
    for (const Value& input : order_[i]->inputs) used_at(input, static_cast<int>(i) + 1);
  for (const Output& output : graph.outputs()) {
    const Value from = root(output.value);
    const bool is_whole = from.type().bytes() == output.value.type().bytes();
    data_[id(*from.node)][static_cast<size_t>(from.index)] += is_whole ? 1 : 2;
    if (output.updates.empty())
      used_at(from, end_step());
    else
      updates_[id(*from.node)][static_cast<size_t>(from.index)] = output.updates;
  }
}

int Arena::add_buffer(Lifetime life) {
  lifetimes_.push_back(life);
  return static_cast<int>(lifetimes_.size()) - 1;
}

void Arena::place_inputs(const Graph& graph) {
  for (Node* node : graph.inputs()) {
    const std::string& name = node->op_as<Input>().input_name;
    const int end = options_->reuse ? last_use({node, 0}, 0) : end_step();
    Home& home = homes_[id(*node)].emplace_back();
    if (options_->in_state(name))
      home.state = name;
    else if (!options_->binds || !has_own_bytes({node, 0}))
      home.buffer = add_buffer({node->outputs[0].bytes(), 0, end});
  }
}

// The buffer of an operand that ends here and that element i of the result may overwrite.
int Arena::reusable_operand(Value value, int step) const {
  const Node& node = *value.node;
  if (!options_->reuse || node.is<Copy>()) return kNone;
  for (const Value& input : node.inputs) {
    if (input.type().elements() != value.type().elements() ||
        input.type().bytes() != value.type().bytes())
      continue;
    const int at = buffer(input);
    if (at != kNone && lifetimes_[static_cast<size_t>(at)].end == step && may_overwrite(value, at))
      return at;
  }
  return kNone;
}

// Every operand that lies in the buffer lets the result be made there.
bool Arena::may_overwrite(Value value, int buffer_index) const {
  const Node& node = *value.node;
  for (size_t i = 0; i < node.inputs.size(); ++i)
    if (buffer(node.inputs[i]) == buffer_index &&
        !node.op->may_overwrite(static_cast<size_t>(value.index), i))
      return false;
  return true;
}

Arena::Home Arena::place_result(Value value, int step) {
  const std::string_view updated = updates_[id(*value.node)][static_cast<size_t>(value.index)];
  if (!updated.empty()) return {kNone, updated};
  if (options_->binds && has_own_bytes(value)) return {};
  const int end = options_->reuse ? last_use(value, step) : end_step();
  const int shared = reusable_operand(value, step);
  if (shared == kNone) return {add_buffer({value.type().bytes(), step, end})};
  lifetimes_[static_cast<size_t>(shared)].end = end;
  return {shared};
}

void Arena::place_results(const Node& node, int step) {
  for (size_t i = 0; i < node.outputs.size(); ++i)
    homes_[id(node)].push_back(place_result({const_cast<Node*>(&node), static_cast<int>(i)}, step));
  const int64_t bytes = options_->workspace_bytes(node);
  workspaces_.push_back(bytes == 0 ? kNone : add_buffer({bytes, step, step}));
}

std::vector<Arena> arenas(const Graph& graph, const ArenaOptions& options) {
  const std::vector<Value> roots = byte_roots(graph, options.reuse);
  LaunchOrder plain;
  for (const Node* node : schedule(graph, roots))
    if (roots[static_cast<size_t>(node->id)].node == node) plain.push_back(node);
  std::vector<LaunchOrder> orders{plain};
  if (options.reuse) orders = reorder(graph, roots, plain);
  std::vector<std::pair<int64_t, Arena>> ranked;
  for (LaunchOrder& order : orders) {
    Arena arena(graph, std::move(order), options);
    const int64_t live = largest_live_set(arena.lifetimes());
    ranked.emplace_back(live, std::move(arena));
  }
  std::stable_sort(
      ranked.begin(), ranked.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Arena> result;
  for (auto& [live, arena] : ranked) result.push_back(std::move(arena));
  return result;
}

PlacedArena place_arena(const Graph& graph, const ArenaOptions& options) {
  std::optional<PlacedArena> best;
  for (Arena& arena : arenas(graph, options)) {
    if (best && is_close(best->layout.peak, largest_live_set(arena.lifetimes()))) break;
    Layout layout = lay_out(arena.lifetimes(), options.reuse);
    if (!best || layout.peak < best->layout.peak)
      best.emplace(PlacedArena{std::move(arena), std::move(layout)});
  }
  return std::move(*best);
}

}  // namespace ridge
