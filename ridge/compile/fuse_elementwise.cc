// Makes one loop of elementwise ops that feed each other: what passes between them stays in the
// cache. Constants and broadcasts are computed within each loop that reads them.
//
//   a = exp(x)
//   b = mul(a, broadcast(s))   ->   b = fused(x, s)
//   c = add(b, x)                   with the other results that somebody else reads
#include <algorithm>
#include <map>
#include <set>

#include "ridge/compile/pass.h"
#include "ridge/compile/rewrite.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

// What a loop may hold: its values for a block have to stay in the first cache.
constexpr size_t kMostOps = 40;
constexpr size_t kMostInputs = 24;
constexpr size_t kMostResults = 8;

// Which nodes the backend runs within a loop, asked with a loop of that one op.
class Members {
 public:
  explicit Members(Backend& backend) : backend_(backend) {}

  bool contains(const Node& node) {
    if (!is_fusible(node) || node.is<Copy>()) return false;
    std::string key = fmt::format("{}({})", node.op->name(), fields_text(*node.op));
    for (const Value& input : node.inputs) key += name_of(input.dtype());
    const auto [at, is_new] = known_.try_emplace(std::move(key), false);
    if (is_new) at->second = runs_in_loop(node);
    return at->second;
  }

 private:
  bool runs_in_loop(const Node& node) {
    Graph body("fused"), probe("probe");
    std::vector<Value> operands, inputs;
    for (const Value& value : node.inputs) {
      const std::string name = fmt::format("{}", operands.size());
      operands.push_back(input(body, name, {value.dtype(), {1}}));
      inputs.push_back(input(probe, name, {value.dtype(), {1}}));
    }
    body.add_output("0", {&body.add(node.op, operands), 0});
    const auto choices = backend_.candidates(fused(probe, body, inputs, node.site));
    return !choices.empty() && choices.front().name != kExpandedChoice;
  }

  Backend& backend_;
  std::map<std::string, bool> known_;
};

// A value that a loop makes for itself rather than reads.
bool is_cheap(Value value) {
  const Node& node = *value.node;
  if (node.is<Constant>()) return node.op_as<Constant>().is_splat();
  return node.is<Broadcast>() && node.inputs[0].type().bytes() < node.outputs[0].bytes();
}

// Groups of nodes; a node that is no member is a group of its own.
class Grouping {
 public:
  Grouping(const Graph& graph, Backend& backend) : graph_(graph), group_of_(graph.nodes().size()) {
    find_users();
    Members members(backend);
    for (const auto& node : graph.nodes()) is_member_.push_back(members.contains(*node));
    for (const auto& node : graph.nodes()) add(*node);
  }

  struct Group {
    std::vector<const Node*> nodes;
    std::set<int> operands;  // groups that are read
    int last = 0;            // the largest id of a member
  };

  const std::vector<Group>& groups() const { return groups_; }
  bool is_member(const Node& node) const { return is_member_[static_cast<size_t>(node.id)]; }
  int group_of(const Node& node) const { return group_of_[static_cast<size_t>(node.id)]; }

  /// Members whose values are read outside of their group, or are outputs of the graph.
  std::vector<const Node*> results(const Group& group) const {
    std::vector<const Node*> found;
    for (const Node* node : group.nodes)
      if (is_read_outside(*node)) found.push_back(node);
    return found;
  }

 private:
  void find_users() {
    users_.resize(graph_.nodes().size());
    is_output_.resize(graph_.nodes().size());
    for (const auto& node : graph_.nodes())
      for (const Value& input : node->inputs)
        users_[static_cast<size_t>(input.node->id)].push_back(node.get());
    for (const Output& output : graph_.outputs())
      is_output_[static_cast<size_t>(output.value.node->id)] = true;
  }

  bool is_read_outside(const Node& node) const {
    if (is_output_[static_cast<size_t>(node.id)]) return true;
    const auto& users = users_[static_cast<size_t>(node.id)];
    return std::any_of(users.begin(), users.end(), [&](const Node* user) {
      return group_of(*user) != group_of(node);
    });
  }

  // The first operand's group, by position, that the node can join; -1 for none.
  int group_to_join(const Node& node) const {
    if (!is_member(node)) return -1;
    int best = -1;
    for (const Value& input : node.inputs) {
      if (!is_member(*input.node) || is_cheap(input)) continue;
      const int candidate = group_of(*input.node);
      if (candidate > best && can_join(node, candidate)) best = candidate;
    }
    return best;
  }

  bool can_join(const Node& node, int candidate) const {
    const Group& group = groups_[static_cast<size_t>(candidate)];
    if (group.nodes.front()->outputs[0].shape != node.outputs[0].shape) return false;
    if (group.nodes.size() >= kMostOps || !fits(group, node)) return false;
    // No operand may wait for the group: it would wait for itself.
    return std::none_of(node.inputs.begin(), node.inputs.end(), [&](const Value& input) {
      const int other = group_of(*input.node);
      return other != candidate && depends_on(other, candidate);
    });
  }

  bool fits(const Group& group, const Node& node) const {
    std::set<std::pair<int, int>> read;
    size_t results = 1;
    const auto count = [&](const Node& member) {
      for (const Value& input : member.inputs) {
        const bool inside =
            std::find(group.nodes.begin(), group.nodes.end(), input.node) != group.nodes.end();
        if (!inside) read.insert({input.node->id, input.index});
      }
    };
    for (const Node* member : group.nodes) {
      count(*member);
      const auto& users = users_[static_cast<size_t>(member->id)];
      results +=
          is_output_[static_cast<size_t>(member->id)] ||
          std::any_of(users.begin(), users.end(), [&](const Node* user) {
            return user != &node && (user->id > node.id || group_of(*user) != group_of(*member));
          });
    }
    count(node);
    return read.size() <= kMostInputs && results <= kMostResults;
  }

  // True when group `from` reads, over any number of groups, what `target` makes.
  bool depends_on(int from, int target) const {
    const int first = groups_[static_cast<size_t>(target)].nodes.front()->id;
    std::vector<int> open{from};
    std::set<int> seen{from};
    while (!open.empty()) {
      const Group& group = groups_[static_cast<size_t>(open.back())];
      open.pop_back();
      if (group.last < first) continue;  // it was there before the target's first node
      for (int operand : group.operands) {
        if (operand == target) return true;
        if (seen.insert(operand).second) open.push_back(operand);
      }
    }
    return false;
  }

  void add(const Node& node) {
    int index = group_to_join(node);
    if (index < 0) {
      index = static_cast<int>(groups_.size());
      groups_.emplace_back();
    }
    Group& group = groups_[static_cast<size_t>(index)];
    group.nodes.push_back(&node);
    group.last = node.id;
    group_of_[static_cast<size_t>(node.id)] = index;
    for (const Value& input : node.inputs)
      if (group_of(*input.node) != index) group.operands.insert(group_of(*input.node));
  }

  const Graph& graph_;
  std::vector<int> group_of_;
  std::vector<Group> groups_;
  std::vector<std::vector<const Node*>> users_;
  std::vector<bool> is_output_, is_member_;
};

// The order of the groups: each after those that it reads, else by first node.
std::vector<int> ordered(const Grouping& grouping) {
  const auto& groups = grouping.groups();
  std::vector<int> waits(groups.size());
  std::vector<std::vector<int>> readers(groups.size());
  for (size_t i = 0; i < groups.size(); ++i)
    for (int operand : groups[i].operands) {
      ++waits[i];
      readers[static_cast<size_t>(operand)].push_back(static_cast<int>(i));
    }
  std::map<int, int> ready;  // by the group's last node: where the plain graph has it
  for (size_t i = 0; i < groups.size(); ++i)
    if (waits[i] == 0) ready.emplace(groups[i].last, static_cast<int>(i));
  std::vector<int> order;
  while (!ready.empty()) {
    const int index = ready.begin()->second;
    ready.erase(ready.begin());
    order.push_back(index);
    for (int reader : readers[static_cast<size_t>(index)])
      if (--waits[static_cast<size_t>(reader)] == 0)
        ready.emplace(groups[static_cast<size_t>(reader)].last, reader);
  }
  check_internal(order.size() == groups.size(), "fused groups wait for each other");
  return order;
}

// Builds the body of one group and replaces its members.
class Loop {
 public:
  Loop(const Grouping::Group& group, const Grouping& grouping, Rewrite& rewrite)
      : group_(group), grouping_(grouping), rewrite_(rewrite), body_("fused") {}

  void build() {
    for (const Node* node : group_.nodes) find_inputs(*node);
    if (inputs_.empty()) {  // constants alone, where folding is off
      for (const Node* node : group_.nodes) rewrite_.copy(*node);
      return;
    }
    for (const Node* node : group_.nodes) {
      std::vector<Value> operands;
      for (const Value& input : node->inputs) operands.push_back(inside(input));
      values_[node] = {&body_.add(node->op, std::move(operands), node->site), 0};
    }
    const std::vector<const Node*> results = grouping_.results(group_);
    for (size_t i = 0; i < results.size(); ++i)
      body_.add_output(fmt::format("{}", i), values_.at(results[i]));
    Node& node = fused(rewrite_.to(), body_, inputs_, group_.nodes.back()->site);
    for (size_t i = 0; i < results.size(); ++i)
      rewrite_.replace(*results[i], {{&node, static_cast<int>(i)}});
  }

 private:
  bool is_inside(Value value) const {
    return grouping_.group_of(*value.node) == grouping_.group_of(*group_.nodes.front());
  }

  // Inputs come first in a body.
  void find_inputs(const Node& node) {
    for (const Value& value : node.inputs) {
      if (is_inside(value) || (is_cheap(value) && value.node->is<Constant>())) continue;
      const Value outer = is_cheap(value) ? value.node->inputs[0] : value;
      const Value mapped = rewrite_.mapped(outer);
      if (outer_.contains({mapped.node->id, mapped.index})) continue;
      outer_[{mapped.node->id, mapped.index}] =
          input(body_, fmt::format("{}", inputs_.size()), mapped.type());
      inputs_.push_back(mapped);
    }
  }

  Value outer_value(Value value) const {
    const Value mapped = rewrite_.mapped(value);
    return outer_.at({mapped.node->id, mapped.index});
  }

  // The body's value for an operand: a member, a constant or broadcast made anew, or an input.
  Value inside(Value value) {
    if (is_inside(value)) return values_.at(value.node);
    if (!is_cheap(value)) return outer_value(value);
    Value& made = cheap_[value.node];
    if (made) return made;
    std::vector<Value> operands;
    if (value.node->is<Broadcast>()) operands.push_back(outer_value(value.node->inputs[0]));
    made = {&body_.add(value.node->op, std::move(operands), value.node->site), 0};
    return made;
  }

  const Grouping::Group& group_;
  const Grouping& grouping_;
  Rewrite& rewrite_;
  Graph body_;
  std::vector<Value> inputs_;
  std::map<std::pair<int, int>, Value> outer_;
  std::map<const Node*, Value> values_, cheap_;
};

}  // namespace

bool fuse_elementwise(Graph& graph, PassContext& context) {
  const Grouping grouping(graph, context.backend);
  Rewrite rewrite(graph);
  bool changed = false;
  for (int index : ordered(grouping)) {
    const auto& group = grouping.groups()[static_cast<size_t>(index)];
    const auto reads_cheap = [](const Node* node) {
      return std::any_of(node->inputs.begin(), node->inputs.end(), is_cheap);
    };
    if (grouping.is_member(*group.nodes.front()) &&
        (group.nodes.size() > 1 || reads_cheap(group.nodes[0]))) {
      Loop(group, grouping, rewrite).build();
      changed = true;
    } else {
      rewrite.copy(*group.nodes.front());
    }
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
