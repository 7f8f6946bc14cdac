#include "ridge/compile/passes/loop_groups.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <optional>

#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// Upper bounds of a loop's size: its values for a block have to stay in the first cache.
constexpr size_t kMostOps = 40;
constexpr size_t kMostRowOps = 64;
constexpr size_t kMostInputs = 24;
constexpr size_t kMostResults = 8;

bool is_splat(const Node& node) { return node.is<Constant>() && node.op_as<Constant>().is_splat(); }

// The node behind views of it.
const Node& base_of(const Node& node) {
  const Node* at = &node;
  while (is_loop_view(*at) && !at->inputs.empty()) at = at->inputs[0].node;
  return *at;
}

// The domain of a loop of the node alone; nothing where there is none.
std::optional<LoopDomain> own_domain(const Node& node) {
  if (is_fusible(node)) return LoopDomain{node.outputs[0].elements(), 0};
  const int64_t elements = node.inputs[0].type().elements();
  LoopDomain domain{elements, 0};
  if (node.is<Pick>() || node.is<MaskColumns>()) {
    domain.columns = node.inputs[0].dim(-1);
  } else {
    const ReducedAxes axes = reduced_axes(node);
    if (axes.kind == ReducedAxes::kMixed) return std::nullopt;
    if (axes.kind == ReducedAxes::kLast) domain.columns = axes.reduced;
    if (axes.kind == ReducedAxes::kFirst) domain.columns = axes.kept;
    if (axes.kind == ReducedAxes::kAll) return domain;
  }
  const bool has_rows = domain.columns >= 2 && domain.columns <= kMostLoopColumns &&
                        domain.rows() >= 2 && elements % domain.columns == 0;
  return has_rows ? std::optional(domain) : std::nullopt;
}

std::optional<LoopDomain> joined(const LoopDomain& a, const LoopDomain& b) {
  if (a.elements == b.elements) {
    if (a.columns != 0 && b.columns != 0 && a.columns != b.columns) return std::nullopt;
    return a.columns != 0 ? a : b;
  }
  // Values of the rows of the other.
  if (b.columns == 0 && b.elements == a.rows()) return a;
  if (a.columns == 0 && a.elements == b.rows()) return b;
  return std::nullopt;
}

}  // namespace

bool is_loop_view(const Node& node) {
  return is_splat(node) || node.is<Broadcast>() || node.is<Reshape>() || node.is<OneHot>();
}

bool LoopGroups::Members::contains(const Node& node) {
  const bool is_known_kind = (is_fusible(node) && !node.is<Copy>()) || is_loop_reduction(node) ||
                             node.is<Pick>() || node.is<MaskColumns>();
  if (!is_known_kind) return false;
  std::string key(node.op->name());
  // Every dropout has a key of its own.
  if (is_fusible(node) && !node.is<Dropout>()) key += fmt::format("({})", fields_text(*node.op));
  for (const Value& input : node.inputs) key += name_of(input.dtype());
  const auto [at, is_new] = known_.try_emplace(std::move(key), false);
  if (is_new) at->second = runs_in_loop(node);
  return at->second;
}

bool LoopGroups::Members::runs_in_loop(const Node& node) {
  Graph body("fused"), probe("probe");
  std::vector<Value> operands, inputs;
  const bool has_rows = !is_fusible(node);
  for (const Value& value : node.inputs) {
    const std::string name = fmt::format("{}", operands.size());
    const bool is_index = has_rows && !operands.empty();
    TensorType type{value.dtype(), has_rows && !is_index ? Shape{2, 2} : Shape{has_rows ? 2 : 1}};
    if (node.is<Dropout>())
      type.shape = {operands.empty() ? node.op_as<Dropout>().samples : node.inputs[1].dim(0)};
    operands.push_back(input(body, name, type));
    inputs.push_back(input(probe, name, type));
  }
  Value result;
  if (node.is<Pick>())
    result = pick(operands[0], operands[1]);
  else if (node.is<MaskColumns>())
    result = mask_columns(operands[0], 1, 0.0);
  else if (node.is<ReduceMean>())
    result = reduce_mean(operands[0], {1});
  else if (node.is<ReduceMax>())
    result = reduce_max(operands[0], {1});
  else if (node.is<ReduceSum>())
    result = reduce_sum(operands[0], {1});
  else
    result = {&body.add(node.op, operands), 0};
  body.add_output("0", result);
  const LoopDomain domain = has_rows ? LoopDomain{4, 2} : LoopDomain{};
  return has_kernel(fused(probe, body, inputs, node.site, domain), backend_);
}

LoopGroups::LoopGroups(const Graph& graph, Backend& backend) : group_of_(graph.nodes().size(), -1) {
  find_users(graph);
  Members members(backend);
  for (const auto& node : graph.nodes())
    is_member_.push_back(members.contains(*node) && own_domain(*node).has_value());
  find_times(graph);
  for (const auto& node : graph.nodes()) add(*node);
  join_lone_reductions();
  find_needed_views(graph);
}

void LoopGroups::find_users(const Graph& graph) {
  users_.resize(graph.nodes().size());
  is_output_.resize(graph.nodes().size());
  for (const auto& node : graph.nodes())
    for (const Value& input : node->inputs) users_[id(*input.node)].push_back(node.get());
  for (const Output& output : graph.outputs()) is_output_[id(*output.value.node)] = true;
}

// First when each value can be there, then when it is needed.
void LoopGroups::find_times(const Graph& graph) {
  const size_t count = graph.nodes().size();
  std::vector<int> ready(count);
  const auto is_light = [&](const Node& node) {
    return is_member_[id(node)] || is_loop_view(node);
  };
  for (const auto& node : graph.nodes())
    for (const Value& input : node->inputs) {
      const Node& from = *input.node;
      const int own = is_light(from) || from.is<Input>() ? 0 : 1;
      ready[id(*node)] = std::max(ready[id(*node)], ready[id(from)] + own);
    }
  times_ = ready;
  for (size_t i = count; i-- > 0;) {
    const Node& node = *graph.nodes()[i];
    // A reduction over the whole domain is small, so it runs as early as it can.
    const bool is_sum = is_loop_reduction(node) && reduced_axes(node).kind != ReducedAxes::kLast;
    if (!is_light(node) || is_sum || is_output_[i] || users_[i].empty()) continue;
    int needed = std::numeric_limits<int>::max();
    for (const Node* user : users_[i])
      needed = std::min(needed, is_light(*user) ? times_[id(*user)] : ready[id(*user)]);
    times_[i] = std::max(needed, ready[i]);
  }
}

void LoopGroups::add(const Node& node) {
  const int own = static_cast<int>(groups_.size());
  group_of_[id(node)] = own;
  LoopGroup group{.nodes = {&node},
                  .domain = {},
                  .is_loop = is_member_[id(node)],
                  .time = times_[id(node)],
                  .made_anew = {}};
  if (group.is_loop) group.domain = *own_domain(node);
  group.is_loop = group.is_loop && is_valid(group);
  groups_.push_back(std::move(group));
  if (groups_.back().is_loop) join_operands(node, own);
}

// The latest group first: its values are in the cache.
void LoopGroups::join_operands(const Node& node, int own) {
  std::set<int, std::greater<>> candidates;
  for (const Value& input : node.inputs) candidates.insert(group_of(base_of(*input.node)));
  candidates.erase(own);
  for (const int candidate : candidates)
    if (group(candidate).is_loop) try_merge(candidate, group_of(node));
}

// A sum of what another loop reads as well joins that loop.
void LoopGroups::join_lone_reductions() {
  for (size_t i = 0; i < groups_.size(); ++i) {
    if (!groups_[i].is_loop || groups_[i].nodes.size() != 1) continue;
    const Node& node = *groups_[i].nodes[0];
    if (!is_loop_reduction(node)) continue;
    for (const Node* user : users_[id(*node.inputs[0].node)]) {
      const int other = group_of(*user);
      if (user == &node || !groups_[static_cast<size_t>(other)].is_loop) continue;
      if (group_of(node) == other || try_merge(other, group_of(node))) break;
    }
  }
}

bool LoopGroups::try_merge(int a, int b) {
  const LoopGroup &first = group(a), &second = group(b);
  const auto domain = joined(first.domain, second.domain);
  if (!domain || first.time != second.time) return false;
  LoopGroup merged{
      .nodes = {}, .domain = *domain, .is_loop = true, .time = first.time, .made_anew = {}};
  std::merge(first.nodes.begin(),
             first.nodes.end(),
             second.nodes.begin(),
             second.nodes.end(),
             std::back_inserter(merged.nodes),
             [](const Node* x, const Node* y) { return x->id < y->id; });
  if (!fits(merged) || !is_valid(merged) || waits_for_itself(merged)) return false;
  for (const Node* node : second.nodes) group_of_[id(*node)] = a;
  groups_[static_cast<size_t>(b)] = {};
  groups_[static_cast<size_t>(a)] = std::move(merged);
  return true;
}

std::set<int> LoopGroups::indices_of(const LoopGroup& group) const {
  std::set<int> indices;
  for (const Node* node : group.nodes) indices.insert(group_of(*node));
  return indices;
}

// Finds the role of every node, and the views that the loop makes anew from values from outside.
bool LoopGroups::is_valid(LoopGroup& merged) const {
  const std::set<int> inside = indices_of(merged);
  std::map<const Node*, LoopRole> roles;
  std::set<const Node*> marked;
  const std::function<LoopRole(const Node&)> role_of = [&](const Node& node) {
    const auto known = roles.find(&node);
    if (known != roles.end()) return known->second;
    LoopRole role = LoopRole::kOuter;
    if (is_splat(node)) {
      role = LoopRole::kUniform;
    } else if (inside.contains(group_of(base_of(node)))) {
      const LoopRole from = role_of(*node.inputs[0].node);  // a view of a node of the loop
      role = loop_role(node, {&from, 1}, merged.domain);
    } else if (node.is<OneHot>() ||
               (node.is<Broadcast>() && node.inputs[0].type().bytes() < node.outputs[0].bytes())) {
      const LoopRole outer = LoopRole::kOuter;
      role = loop_role(node, {&outer, 1}, merged.domain);
      if (role == LoopRole::kNone)
        role = LoopRole::kOuter;
      else
        merged.made_anew.insert(&node);
    }
    if (node.is<OneHot>() && role == LoopRole::kSpotted) marked.insert(node.inputs[0].node);
    roles.emplace(&node, role);
    return role;
  };
  for (const Node* node : merged.nodes) {
    std::vector<LoopRole> inputs;
    for (const Value& input : node->inputs) inputs.push_back(role_of(*input.node));
    const LoopRole role = loop_role(*node, inputs, merged.domain);
    if (role == LoopRole::kNone) return false;
    roles[node] = role;
  }
  return marked.size() <= 1;
}

bool LoopGroups::fits(const LoopGroup& merged) const {
  const size_t most = merged.domain.columns != 0 ? kMostRowOps : kMostOps;
  if (merged.nodes.size() > most) return false;
  const std::set<int> inside = indices_of(merged);
  std::set<std::pair<int, int>> read;
  size_t results = 0;
  for (const Node* node : merged.nodes) {
    results += is_read_outside(*node, inside);
    for (const Value& input : node->inputs)
      if (!inside.contains(group_of(base_of(*input.node))))
        read.insert({input.node->id, input.index});
  }
  return read.size() <= kMostInputs && results <= kMostResults;
}

// A node that was not grouped yet may still join.
bool LoopGroups::is_read_outside(const Node& node, const std::set<int>& inside) const {
  if (is_output_[id(node)]) return true;
  const auto& users = users_[id(node)];
  return std::any_of(users.begin(), users.end(), [&](const Node* user) {
    if (is_loop_view(*user)) return is_read_outside(*user, inside);
    return group_of(*user) >= 0 && !inside.contains(group_of(*user));
  });
}

std::set<int> LoopGroups::reads(const LoopGroup& group, const std::set<int>& inside) const {
  std::set<int> found;
  for (const Node* node : group.nodes)
    for (const Value& input : node->inputs)
      if (!inside.contains(group_of(base_of(*input.node)))) found.insert(group_of(*input.node));
  return found;
}

// Groups whose nodes all come before this one read, over any number of groups, no node from `first`
// on: no group has nodes on both sides of it.
int LoopGroups::settled_before(int first) const {
  int bound = first;
  for (bool is_moved = true; is_moved;) {
    is_moved = false;
    for (const LoopGroup& group : groups_) {
      if (group.nodes.empty() || group.nodes.front()->id >= bound || group.last() < bound) continue;
      bound = group.nodes.front()->id;
      is_moved = true;
    }
  }
  return bound;
}

// True when something that the groups read is made, over any number of groups, from their values.
bool LoopGroups::waits_for_itself(const LoopGroup& merged) const {
  const std::set<int> inside = indices_of(merged);
  const int settled = settled_before(merged.nodes.front()->id);
  const std::set<int> direct = reads(merged, inside);
  std::vector<int> open(direct.begin(), direct.end());
  std::set<int> seen = direct;
  while (!open.empty()) {
    const LoopGroup& next = group(open.back());
    const int index = open.back();
    open.pop_back();
    if (next.last() < settled) continue;
    for (const Node* node : next.nodes)
      for (const Value& input : node->inputs) {
        const int from = group_of(*input.node);
        if (inside.contains(from)) return true;
        if (from != index && seen.insert(from).second) open.push_back(from);
      }
  }
  return false;
}

void LoopGroups::find_needed_views(const Graph& graph) {
  is_needed_.assign(users_.size(), true);
  for (size_t i = users_.size(); i-- > 0;) {
    const Node& node = *graph.nodes()[i];
    if (!is_loop_view(node)) continue;
    const int base = group_of(base_of(node));
    is_needed_[i] =
        is_output_[i] || std::any_of(users_[i].begin(), users_[i].end(), [&](const Node* user) {
          return is_loop_view(*user) ? is_needed_[id(*user)] : group_of(*user) != base;
        });
  }
}

bool LoopGroups::is_inside(Value value, const LoopGroup& group) const {
  return group_of(base_of(*value.node)) == group_of(*group.nodes.front());
}

std::vector<const Node*> LoopGroups::results(const LoopGroup& group) const {
  const std::set<int> inside = indices_of(group);
  std::vector<const Node*> found;
  for (const Node* node : group.nodes)
    if (is_read_outside(*node, inside)) found.push_back(node);
  return found;
}

std::vector<int> LoopGroups::order() const {
  std::vector<int> waits(groups_.size());
  std::vector<std::vector<int>> readers(groups_.size());
  for (size_t i = 0; i < groups_.size(); ++i) {
    const int index = static_cast<int>(i);
    for (const int operand : reads(groups_[i], {index})) {
      ++waits[i];
      readers[static_cast<size_t>(operand)].push_back(index);
    }
  }
  std::map<int, int> ready;  // by the group's last node: where the plain graph has it
  size_t count = 0;
  for (size_t i = 0; i < groups_.size(); ++i) {
    count += !groups_[i].nodes.empty();
    if (waits[i] == 0 && !groups_[i].nodes.empty())
      ready.emplace(groups_[i].last(), static_cast<int>(i));
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int index = ready.begin()->second;
    ready.erase(ready.begin());
    --count;
    if (is_needed_[id(*group(index).nodes.front())]) order.push_back(index);
    for (const int reader : readers[static_cast<size_t>(index)])
      if (--waits[static_cast<size_t>(reader)] == 0) ready.emplace(group(reader).last(), reader);
  }
  check_internal(count == 0, "fused groups wait for each other");
  return order;
}

}  // namespace ridge
