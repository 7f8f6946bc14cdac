#include "ridge/graph/rewrite.h"

#include "ridge/graph/ops/source.h"

namespace ridge {

Rewrite::Rewrite(const Graph& from) : from_(from), to_(from.name()), values_(from.nodes().size()) {
  to_.set_binding(from.binding());
}

Value Rewrite::mapped(Value old) const {
  const auto& results = values_.at(static_cast<size_t>(old.node->id));
  check_internal(!results.empty(), "node '{}' was not rewritten yet", old.node->site.name);
  return results.at(static_cast<size_t>(old.index));
}

std::vector<Value> Rewrite::mapped_inputs(const Node& old) const {
  std::vector<Value> inputs;
  inputs.reserve(old.inputs.size());
  for (const Value& input : old.inputs) inputs.push_back(mapped(input));
  return inputs;
}

Node& Rewrite::copy(const Node& old) {
  Node& node = to_.add_like(old, mapped_inputs(old));
  std::vector<Value> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) results.push_back({&node, static_cast<int>(i)});
  replace(old, std::move(results));
  return node;
}

void Rewrite::replace(const Node& old, std::vector<Value> results) {
  check_internal(results.size() == old.outputs.size(),
                 "{} results stand for the {} of node '{}'",
                 results.size(),
                 old.outputs.size(),
                 old.site.name);
  for (size_t i = 0; i < results.size(); ++i)
    check_internal(results[i].type() == old.outputs[i],
                   "a rewrite of '{}' changes its type from {} to {}",
                   old.site.name,
                   Lazily{[&] { return to_string(old.outputs[i]); }},
                   Lazily{[&] { return to_string(results[i].type()); }});
  values_.at(static_cast<size_t>(old.id)) = std::move(results);
}

Graph Rewrite::finish() {
  for (const Output& output : from_.outputs()) {
    const auto redirected = redirected_.find(output.name);
    const Value value = redirected == redirected_.end() ? mapped(output.value) : redirected->second;
    to_.add_output(output.name, value, output.updates);
  }
  return std::move(to_);
}

std::optional<double> splat_of(Value value) {
  if (value.node == nullptr || !value.node->is<Constant>()) return std::nullopt;
  const auto& constant = value.node->op_as<Constant>();
  if (!constant.is_splat()) return std::nullopt;
  return constant.values.empty() ? static_cast<double>(constant.ints[0]) : constant.values[0];
}

std::vector<bool> live_nodes(const Graph& graph) {
  std::vector<bool> live(graph.nodes().size());
  for (const Output& output : graph.outputs())
    live[static_cast<size_t>(output.value.node->id)] = true;
  for (size_t id = live.size(); id-- > 0;) {
    if (!live[id]) continue;
    for (const Value& input : graph.nodes()[id]->inputs)
      live[static_cast<size_t>(input.node->id)] = true;
  }
  return live;
}

}  // namespace ridge
