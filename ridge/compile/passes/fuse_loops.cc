// Makes one loop of ops that feed each other: what passes between them stays in the cache. A loop
// over rows holds the reductions of the rows as well. Constants, broadcasts and one-hots are
// computed within each loop that reads them.
//
//   a = exp(x)
//   s = reduce_sum(a, axes=[1])          ->   y, t = fused(x)
//   y = mul(a, broadcast(div(1, s)))
//   t = reduce_sum(y, axes=[0])
#include <map>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/compile/passes/loop_groups.h"
#include "ridge/graph/ops/fused.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// Builds the body of one group and replaces its nodes.
class LoopBody {
 public:
  LoopBody(const LoopGroup& group, const LoopGroups& groups, Rewrite& rewrite)
      : group_(group), groups_(groups), rewrite_(rewrite), body_("fused") {
    for (const Node* node : group.nodes)
      for (const Value& input : node->inputs) find_input(input);
    if (inputs_.empty()) return;  // constants alone, where folding is off
    for (const Node* node : group.nodes) {
      std::vector<Value> operands;
      for (const Value& input : node->inputs) operands.push_back(inside(input));
      values_[node] = {&body_.add(node->op, std::move(operands), node->site), 0};
    }
    results_ = groups.results(group);
    for (size_t i = 0; i < results_.size(); ++i)
      body_.add_output(fmt::format("{}", i), values_.at(results_[i]));
  }

  // True when the backend runs the loop as one.
  bool is_run_as_one(Backend& backend) const {
    if (inputs_.empty()) return false;
    if (domain().elements == 0) return true;  // it has been asked for each op
    Graph probe("probe");
    std::vector<Value> inputs;
    for (const Value& value : inputs_)
      inputs.push_back(input(probe, fmt::format("{}", inputs.size()), value.type()));
    return has_kernel(fused(probe, body_, inputs, group_.nodes.back()->site, domain()), backend);
  }

  void replace() {
    Node& node = fused(rewrite_.to(), body_, inputs_, group_.nodes.back()->site, domain());
    for (size_t i = 0; i < results_.size(); ++i)
      rewrite_.replace(*results_[i], {{&node, static_cast<int>(i)}});
  }

 private:
  // None for elementwise bodies.
  LoopDomain domain() const {
    for (const Node* node : group_.nodes)
      if (!is_fusible(*node)) return group_.domain;
    return {};
  }

  bool is_made_here(const Node& node) const {
    return group_.made_anew.contains(&node) ||
           (node.is<Constant>() && node.op_as<Constant>().is_splat());
  }

  // Inputs come first in a body.
  void find_input(Value value) {
    if (groups_.is_inside(value, group_)) return;
    if (is_made_here(*value.node)) {
      for (const Value& from : value.node->inputs) add_input(from);
      return;
    }
    add_input(value);
  }

  void add_input(Value value) {
    const Value mapped = rewrite_.mapped(value);
    if (outer_.contains({mapped.node->id, mapped.index})) return;
    outer_[{mapped.node->id, mapped.index}] =
        input(body_, fmt::format("{}", inputs_.size()), mapped.type());
    inputs_.push_back(mapped);
  }

  Value outer_value(Value value) const {
    const Value mapped = rewrite_.mapped(value);
    return outer_.at({mapped.node->id, mapped.index});
  }

  // The body's value for an operand: a node of it, a view made anew, or an input.
  Value inside(Value value) {
    const Node& node = *value.node;
    if (const auto known = values_.find(&node); known != values_.end()) return known->second;
    const bool is_view_inside = groups_.is_inside(value, group_);
    if (!is_view_inside && !is_made_here(node)) return outer_value(value);
    std::vector<Value> operands;
    for (const Value& from : node.inputs)
      operands.push_back(is_view_inside ? inside(from) : outer_value(from));
    const Value made{&body_.add(node.op, std::move(operands), node.site), 0};
    values_[&node] = made;
    return made;
  }

  const LoopGroup& group_;
  const LoopGroups& groups_;
  Rewrite& rewrite_;
  Graph body_;
  std::vector<Value> inputs_;
  std::vector<const Node*> results_;
  std::map<std::pair<int, int>, Value> outer_;
  std::map<const Node*, Value> values_;
};

// The node as it is, with the views that it reads.
void copy_with_views(const Node& node, Rewrite& rewrite) {
  for (const Value& input : node.inputs)
    if (!rewrite.has(*input.node)) copy_with_views(*input.node, rewrite);
  rewrite.copy(node);
}

// A loop of one op pays where it saves a broadcast from being written out.
bool is_worth_it(const LoopGroup& group) {
  if (!group.is_loop) return false;
  if (group.nodes.size() > 1) return true;
  if (!is_fusible(*group.nodes.front())) return false;
  for (const Value& input : group.nodes.front()->inputs)
    if (group.made_anew.contains(input.node) || input.node->is<Constant>()) return true;
  return false;
}

}  // namespace

bool fuse_loops(Graph& graph, PassContext& context) {
  const LoopGroups groups(graph, context.backend);
  Rewrite rewrite(graph);
  bool changed = false;
  for (const int index : groups.order()) {
    const LoopGroup& group = groups.group(index);
    if (is_worth_it(group)) {
      LoopBody body(group, groups, rewrite);
      if (body.is_run_as_one(context.backend)) {
        body.replace();
        changed = true;
        continue;
      }
    }
    for (const Node* node : group.nodes) copy_with_views(*node, rewrite);
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
