#include "ridge/graph/ops/fused_each.h"

#include <algorithm>
#include <numeric>

#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

size_t index_of(const Node& node) { return static_cast<size_t>(node.id); }
const Shape kOneElement{1};

bool is_total(const Node& node) { return is_loop_reduction(node) && !node.is<ReduceMean>(); }

// Over all elements of `shape`.
std::shared_ptr<const Op> total_over(const Node& node, const Shape& shape) {
  std::vector<int64_t> axes(shape.size());
  std::iota(axes.begin(), axes.end(), 0);
  const auto made = [&]<typename T>(T op) -> std::shared_ptr<const Op> {
    op.axes = axes;
    return std::make_shared<const T>(std::move(op));
  };
  return node.is<ReduceSum>() ? made(ReduceSum()) : made(ReduceMax());
}

// The node's op where the values of elements have another shape.
std::shared_ptr<const Op> op_for(const Node& node, const Shape& shape) {
  if (node.is<Broadcast>()) {
    Broadcast op;
    op.shape = shape;
    return std::make_shared<const Broadcast>(op);
  }
  if (node.is<Constant>()) {
    Constant op = node.op_as<Constant>();
    op.shape = shape;
    return std::make_shared<const Constant>(std::move(op));
  }
  return is_total(node) ? total_over(node, shape) : node.op;
}

// ---- bodies ----

std::string_view wrong_with(const Node& node, size_t& shared, size_t& own) {
  const Shape& shape = node.outputs[0].shape;
  if (node.is<Input>()) {
    const bool is_shared = shape.empty();
    if (!is_shared && shape != kOneElement) return "is no input of shape [] or [1]";
    if (node.op_as<Input>().input_name != fmt::format("{}", shared + own))
      return "is an input out of its order";
    if (is_shared && own > 0) return "is a shared input behind one of the tensors";
    ++(is_shared ? shared : own);
    return {};
  }
  const bool reads_scalar = std::any_of(
      node.inputs.begin(), node.inputs.end(), [](Value value) { return value.shape().empty(); });
  if (is_total(node)) return reads_scalar || !shape.empty() ? "is no total of elements" : "";
  if (shape != kOneElement) return "is of another shape than [1]";
  if (node.is<Broadcast>())
    return node.inputs[0].node->is<Input>() && reads_scalar ? "" : "broadcasts no shared input";
  if (node.is<Constant>()) return node.op_as<Constant>().is_splat() ? "" : "has several elements";
  const bool is_elementwise = is_fusible(node) && !node.is<Dropout>();
  return is_elementwise && !reads_scalar ? "" : "is not elementwise";
}

EachBody parse_body(const std::string& text) {
  EachBody body{.text = text, .graph = parse_graph(text, "body of a list")};
  for (const auto& node : body.graph.nodes()) {
    const std::string_view why = wrong_with(*node, body.shared, body.own);
    if (!why.empty())
      throw UserError(fmt::format("[fused_each] node '{}' of the body {}", node->site.name, why));
  }
  body.results = body.graph.outputs().size();
  check(body.own > 0 && body.results > 0,
        "[fused_each] the body reads {} values of a tensor and makes {}; expected one or more",
        body.own,
        body.results);
  for (size_t i = 0; i < body.results; ++i) {
    const Output& output = body.graph.outputs()[i];
    const bool is_made = !output.value.node->inputs.empty() && !output.value.node->is<Broadcast>();
    check(output.name == fmt::format("{}", i) && output.updates.empty() && is_made,
          "[fused_each] output {} of the body must be named '{}' and computed",
          i,
          i);
  }
  return body;
}

}  // namespace

const EachBody& read_body(const FusedEach& op) {
  if (op.read_ == nullptr || op.read_->text != op.body)
    op.read_ = std::make_shared<const EachBody>(parse_body(op.body));
  return *op.read_;
}

std::shared_ptr<const Fused> fused_of(const FusedEach& op, const Shape& shape) {
  const Graph& from = read_body(op).graph;
  Graph body("fused"), alone("alone");
  std::vector<Value> values, inputs;
  bool has_totals = false;
  for (const auto& node : from.nodes()) {
    if (node->is<Input>()) {
      TensorType type = node->outputs[0];
      if (!type.shape.empty()) type.shape = shape;
      const std::string& name = node->op_as<Input>().input_name;
      values.push_back(input(body, name, type));
      inputs.push_back(input(alone, name, type));
      continue;
    }
    std::vector<Value> operands;
    for (const Value& value : node->inputs) operands.push_back(values[index_of(*value.node)]);
    values.push_back({&body.add(op_for(*node, shape), std::move(operands)), 0});
    has_totals = has_totals || is_total(*node);
  }
  for (const Output& output : from.outputs())
    body.add_output(output.name, values[index_of(*output.value.node)]);
  const LoopDomain domain = has_totals ? LoopDomain{numel(shape), 0} : LoopDomain{};
  const Node& made = fused(alone, body, std::move(inputs), Site{"fused"}, domain);
  return std::dynamic_pointer_cast<const Fused>(made.op);
}

// ---- the op ----

std::vector<TensorType> FusedEach::infer(std::span<const TensorType> inputs) const {
  const EachBody& read = read_body(*this);
  check(inputs.size() > read.shared && (inputs.size() - read.shared) % read.own == 0,
        "[fused_each] wrong number of inputs; got {}, the body has {} shared and {} a tensor",
        inputs.size(),
        read.shared,
        read.own);
  std::vector<TensorType> types;
  for (size_t tensor = 0; tensor < read.tensors(inputs.size()); ++tensor) {
    const Shape& shape = inputs[read.operand(tensor, read.shared)].shape;
    check(
        numel(shape) >= 2, "[fused_each] tensor {} has one element; expected two or more", tensor);
    for (const Node* node : read.graph.inputs()) {
      const size_t i = read.operand(tensor, input_number(*node));
      TensorType expected = node->outputs[0];
      if (!expected.shape.empty()) expected.shape = shape;
      check(inputs[i] == expected,
            "[fused_each] input {} has another type; got {}, expected {}",
            i,
            to_string(inputs[i]),
            to_string(expected));
    }
    for (const Output& output : read.graph.outputs())
      types.push_back(
          {output.value.dtype(), output.value.shape().empty() ? output.value.shape() : shape});
  }
  return types;
}

std::vector<Value> FusedEach::expand(std::span<const Value> inputs) const {
  const EachBody& read = read_body(*this);
  std::vector<Value> results;
  for (size_t tensor = 0; tensor < read.tensors(inputs.size()); ++tensor) {
    std::vector<Value> operands;
    for (size_t i = 0; i < read.shared + read.own; ++i)
      operands.push_back(inputs[read.operand(tensor, i)]);
    const auto own = fused_of(*this, operands[read.shared].shape())->expand(operands);
    results.insert(results.end(), own.begin(), own.end());
  }
  return results;
}

Cost FusedEach::cost(std::span<const TensorType> inputs,
                     std::span<const TensorType> outputs) const {
  const EachBody& read = read_body(*this);
  double per_element = 0, elements = 0;
  for (const auto& node : read.graph.nodes()) per_element += is_fusible(*node) || is_total(*node);
  for (size_t tensor = 0; tensor < read.tensors(inputs.size()); ++tensor)
    elements += static_cast<double>(inputs[read.operand(tensor, read.shared)].elements());
  return {.flops = per_element * elements, .bytes = total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> FusedEach::batch_flow(const BatchFlowContext& c) const {
  const bool depends = std::any_of(
      c.flows.begin(), c.flows.end(), [](const BatchFlow& flow) { return !flow.is_none(); });
  // Nothing asks after fusion, as for Fused.
  return std::vector<BatchFlow>(
      c.outputs.size(),
      depends ? BatchFlow::mixed("a fused node is not followed") : BatchFlow::none());
}

// A tensor's elements are read by its own body alone, element by element.
bool FusedEach::may_overwrite(size_t result, size_t input) const {
  const EachBody& read = read_body(*this);
  return input >= read.shared && (input - read.shared) / read.own == result / read.results;
}

// ---- parts ----

namespace {

// The node as a body; an elementwise one gets one of its own.
struct Loop {
  const Graph* graph = nullptr;
  Graph own{"alone"};
};

bool find_loop(const Node& node, Loop& loop) {
  if (node.is<Fused>()) {
    const FusedBody& body = read_body(node.op_as<Fused>());
    loop.graph = &body.graph;
    return body.domain.columns == 0;
  }
  if (!is_fusible(node) || node.is<Dropout>() || node.is<Copy>() || node.inputs.empty())
    return false;
  std::vector<Value> inputs;
  for (const Value& value : node.inputs)
    inputs.push_back(input(loop.own, fmt::format("{}", inputs.size()), value.type()));
  loop.own.add_output("0", {&loop.own.add(node.op, std::move(inputs)), 0});
  loop.graph = &loop.own;
  return true;
}

// Writes a body for shape [1].
class PartWriter {
 public:
  PartWriter(const Node& node, const Graph& from)
      : node_(node), from_(from), values_(from.nodes().size()) {}

  std::optional<EachPart> write() {
    if (!find_shape()) return std::nullopt;
    for (const bool shared : {true, false})
      for (const Node* node : from_.inputs())
        if (node->outputs[0].shape.empty() == shared) add_input(*node);
    for (const auto& node : from_.nodes())
      if (!node->is<Input>() && !add(*node)) return std::nullopt;
    for (const Output& output : from_.outputs()) {
      const Node& made = *output.value.node;
      if (!is_total(made) && made.outputs[0].shape != shape_) return std::nullopt;
      body_.add_output(output.name, values_[index_of(made)]);
    }
    part_.body = print(body_);
    return std::move(part_);
  }

 private:
  // Inputs are scalars, or all of one shape.
  bool find_shape() {
    for (const Node* node : from_.inputs()) {
      const Shape& shape = node->outputs[0].shape;
      if (shape.empty()) continue;
      if (shape_.empty()) shape_ = shape;
      if (shape != shape_) return false;
    }
    return numel(shape_) >= 2;
  }

  void add_input(const Node& node) {
    TensorType type = node.outputs[0];
    const Value operand = node_.inputs[input_number(node)];
    (type.shape.empty() ? part_.shared : part_.own).push_back(operand);
    if (!type.shape.empty()) type.shape = kOneElement;
    values_[index_of(node)] = input(body_, fmt::format("{}", body_.inputs().size()), type);
  }

  bool add(const Node& node) {
    const bool is_of_elements = node.outputs[0].elements() == numel(shape_);
    if (node.is<Reshape>() && is_of_elements) {
      values_[index_of(node)] = values_[index_of(*node.inputs[0].node)];
      return true;
    }
    const bool is_kept_total = is_total(node) && node.outputs[0].shape.empty();
    const bool is_splat = node.is<Constant>() && node.op_as<Constant>().is_splat();
    const bool is_spread = node.is<Broadcast>() && node.inputs[0].shape().empty();
    const bool is_elementwise = is_fusible(node) && !node.is<Dropout>();
    if (!is_kept_total && !(is_of_elements && (is_splat || is_spread || is_elementwise)))
      return false;
    std::vector<Value> operands;
    for (const Value& value : node.inputs) operands.push_back(values_[index_of(*value.node)]);
    values_[index_of(node)] = {&body_.add(op_for(node, kOneElement), std::move(operands)), 0};
    return true;
  }

  const Node& node_;
  const Graph& from_;
  std::vector<Value> values_;  // by node of the old body
  Shape shape_;
  Graph body_{"each"};
  EachPart part_;
};

}  // namespace

std::optional<EachPart> part_of_each(const Node& node) {
  Loop loop;
  if (!find_loop(node, loop)) return std::nullopt;
  return PartWriter(node, *loop.graph).write();
}

Node& fused_each(Graph& graph, std::span<const EachPart> parts, Site site) {
  FusedEach op;
  op.body = parts[0].body;
  std::vector<Value> inputs = parts[0].shared;
  for (const EachPart& part : parts) {
    check_internal(part.body == parts[0].body && part.shared == parts[0].shared,
                   "parts of '{}' have other bodies or shared operands",
                   site.name);
    inputs.insert(inputs.end(), part.own.begin(), part.own.end());
  }
  return graph.add(std::make_shared<const FusedEach>(std::move(op)), std::move(inputs), site);
}

void register_fused_each(OpRegistry& r) { r.add<FusedEach>(); }

}  // namespace ridge
