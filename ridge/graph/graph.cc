#include "ridge/graph/graph.h"

#include <algorithm>

#include "ridge/graph/ops/source.h"

namespace ridge {

const TensorType& Value::type() const {
  check_internal(node != nullptr, "type of a null value");
  return node->outputs.at(static_cast<size_t>(index));
}

int64_t Value::dim(int64_t axis) const {
  return shape()[static_cast<size_t>(normalize_axis(axis, rank(), "dim"))];
}

Graph& Value::graph() const {
  check_internal(node != nullptr, "graph of a null value");
  return *node->graph;
}

std::vector<TensorType> Node::input_types() const {
  std::vector<TensorType> types;
  types.reserve(inputs.size());
  for (const Value& input : inputs) types.push_back(input.type());
  return types;
}

Graph::Graph(Graph&& other) noexcept { *this = std::move(other); }

Graph& Graph::operator=(Graph&& other) noexcept {
  name_ = std::move(other.name_);
  nodes_ = std::move(other.nodes_);
  inputs_ = std::move(other.inputs_);
  input_of_name_ = std::move(other.input_of_name_);
  outputs_ = std::move(other.outputs_);
  binding_ = std::move(other.binding_);
  scope_ = std::move(other.scope_);
  ordinals_ = std::move(other.ordinals_);
  adopt_nodes();
  return *this;
}

void Graph::adopt_nodes() {
  for (auto& node : nodes_) node->graph = this;
}

Site Graph::next_site(std::string_view op_name) {
  const std::string key = fmt::format("{}:{}", scope_, op_name);
  const auto found = ordinals_.find(key);
  return {fmt::format("{}.{}", key, found == ordinals_.end() ? 0 : found->second)};
}

Node& Graph::add(std::shared_ptr<const Op> op, std::vector<Value> inputs) {
  Site site = next_site(op->name());
  ++ordinals_[site.name.substr(0, site.name.rfind('.'))];
  return add(std::move(op), std::move(inputs), std::move(site));
}

namespace {

void check_inputs(const Op& op, std::span<const Value> inputs, const Graph& graph) {
  const OpTraits& traits = op.traits();
  const int count = static_cast<int>(inputs.size());
  check(count >= traits.min_inputs && count <= traits.max_inputs,
        "[{}] wrong number of inputs; got {}, expected {}",
        traits.name,
        count,
        Lazily{[&] {
          return traits.min_inputs == traits.max_inputs
                     ? fmt::format("{}", traits.min_inputs)
                     : fmt::format("{} to {}", traits.min_inputs, traits.max_inputs);
        }});
  for (const Value& input : inputs) {
    check(input.node != nullptr, "[{}] an input is null", traits.name);
    check(input.node->graph == &graph, "[{}] an input is a node of another graph", traits.name);
  }
  if (count > 0) {
    check(traits.dtypes.has(inputs[0].dtype()),
          "[{}] dtype not accepted; got {}",
          traits.name,
          name_of(inputs[0].dtype()));
  }
}

}  // namespace

Node& Graph::add(std::shared_ptr<const Op> op, std::vector<Value> inputs, Site site) {
  auto node = std::make_unique<Node>();
  node->id = static_cast<int>(nodes_.size());
  node->op = std::move(op);
  node->inputs = std::move(inputs);
  node->site = std::move(site);
  node->graph = this;
  try {
    check_inputs(*node->op, node->inputs, *this);
    node->outputs = node->op->infer(node->input_types());
    for (const TensorType& type : node->outputs) check_type(type, node->op->name());
  } catch (const UserError& error) {
    throw UserError(fmt::format("{}, at site '{}'", error.message(), node->site.name), error.fix());
  }
  return append(std::move(node));
}

Node& Graph::add_like(const Node& like, std::vector<Value> inputs) {
  auto node = std::make_unique<Node>(Node{.id = static_cast<int>(nodes_.size()),
                                          .op = like.op,
                                          .inputs = std::move(inputs),
                                          .outputs = like.outputs,
                                          .site = like.site,
                                          .graph = this});
  return append(std::move(node));
}

Node& Graph::append(std::unique_ptr<Node> node) {
  nodes_.push_back(std::move(node));
  Node& added = *nodes_.back();
  if (added.is<Input>()) {
    inputs_.push_back(&added);
    input_of_name_.try_emplace(added.op_as<Input>().input_name, &added);
  }
  return added;
}

void Graph::add_output(std::string name, Value value, std::string updates) {
  check(!name.empty(), "[output] the name is empty");
  check(value.node != nullptr && value.node->graph == this,
        "[output] '{}' is not a value of this graph",
        name);
  for (const Output& output : outputs_) {
    check(output.name != name, "[output] two outputs are named '{}'", name);
    check(updates.empty() || output.updates != updates,
          "[output] '{}' and '{}' both update input '{}'",
          output.name,
          name,
          updates);
  }
  if (!updates.empty()) {
    const Node* input = find_input(updates);
    check(input != nullptr, "[output] '{}' updates '{}', which is not an input", name, updates);
    check(input->outputs[0] == value.type(),
          "[output] '{}' updates input '{}' of another type; got {}, expected {}",
          name,
          updates,
          to_string(value.type()),
          to_string(input->outputs[0]));
  }
  outputs_.push_back({std::move(name), value, std::move(updates)});
}

Node* Graph::find_input(std::string_view name) const {
  const auto found = input_of_name_.find(std::string(name));
  return found == input_of_name_.end() ? nullptr : found->second;
}

Graph Graph::clone() const {
  Graph copy(name_);
  copy.binding_ = binding_;
  copy.ordinals_ = ordinals_;
  const auto mapped = [&](Value value) {
    return Value{copy.nodes_[static_cast<size_t>(value.node->id)].get(), value.index};
  };
  for (const auto& node : nodes_) {
    std::vector<Value> inputs;
    for (const Value& input : node->inputs) inputs.push_back(mapped(input));
    copy.add_like(*node, std::move(inputs));
  }
  for (const Output& output : outputs_)
    copy.outputs_.push_back({output.name, mapped(output.value), output.updates});
  return copy;
}

SiteScope::SiteScope(Graph& graph, std::string_view name, Path path)
    : graph_(graph), saved_(graph.scope_) {
  if (path == Path::kAbsolute || graph.scope_.empty())
    graph.scope_ = name;
  else
    graph.scope_ += fmt::format(".{}", name);
}

}  // namespace ridge
