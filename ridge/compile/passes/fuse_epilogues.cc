// Makes one node of a product (a convolution, or a matrix product that keeps its dtype) and the
// loop that alone reads it, where the backend has a kernel for both: the loop runs over each part
// of the result while the caches hold it.
//
//   y = conv2d(x, w)
//   z = fused(y, bias)   relu(y + bias)     ->     z = fused_conv2d(x, w, bias)   relu(... + bias)
//
// A loop of two products, such as the sum of two branches, joins the later one. Matrix products of
// a device belong to fuse_products. A graph that updates its state, as a training step does, stays
// as it is: where memory is short, backward makes the loop's results again from the product alone.
#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/has_kernel.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/rewrite.h"
#include "ridge/graph/text.h"

namespace ridge {
namespace {

struct Joint {
  const Node* product;
  const Node* loop;
  size_t number;               // the loop's input that is the product
  Fused made;                  // the loop, which reads the product first
  std::vector<size_t> others;  // the loop's inputs that it reads after that
};

// The body, with its input `first` before all others.
std::string body_text(const Graph& from, size_t first) {
  Graph body("fused");
  std::vector<Value> values(from.nodes().size());
  const auto id = [](const Node& node) { return static_cast<size_t>(node.id); };
  size_t count = 0;
  for (const bool is_first : {true, false})
    for (const Node* node : from.inputs())
      if ((input_number(*node) == first) == is_first)
        values[id(*node)] = input(body, fmt::format("{}", count++), node->outputs[0]);
  for (const auto& node : from.nodes()) {
    if (node->is<Input>()) continue;
    std::vector<Value> operands;
    for (const Value& operand : node->inputs) operands.push_back(values[id(*operand.node)]);
    values[id(*node)] = {&body.add(node->op, std::move(operands), node->site), 0};
  }
  for (const Output& output : from.outputs())
    body.add_output(output.name, values[id(*output.value.node)]);
  return print(body);
}

bool is_product(const Node& node, const Backend& backend) {
  if (node.is<Conv2d>()) return true;
  if (!node.is<MatMul>() || !backend.is_host()) return false;
  const auto& op = node.op_as<MatMul>();
  return op.round_to == DType::kF32 && !op.tf32 && !op.f32_result;
}

// The loop with the product before it, its input `number`; nothing where it reduces anything, or
// its first result could not lie where the product does.
std::optional<Joint> join(const Node& product, const Node& loop, size_t number) {
  const auto& op = loop.op_as<Fused>();
  const TensorType& made = product.outputs[0];
  const TensorType& result = loop.outputs[0];
  if (op.rows != 0 || result.dtype != made.dtype || result.elements() != made.elements())
    return std::nullopt;
  Joint joint{&product, &loop, number, {}, {}};
  const Graph& body = read_body(op).graph;
  for (const Node* node : body.inputs())
    if (input_number(*node) != number) joint.others.push_back(input_number(*node));
  joint.made.body = body_text(body, number);
  return joint;
}

Node& add_joint(Graph& graph,
                const Joint& joint,
                const std::vector<Value>& factors,
                const std::vector<Value>& others) {
  const Node& product = *joint.product;
  const auto add = [&](const auto& make, const auto& op) -> Node& {
    return make(graph, op, joint.made, factors[0], factors[1], others, product.site);
  };
  return product.is<Conv2d>() ? add(fused_conv2d, product.op_as<Conv2d>())
                              : add(fused_matmul, product.op_as<MatMul>());
}

bool is_run_as_one(const Joint& joint, Backend& backend) {
  Graph probe("probe");
  size_t number = 0;
  const auto open = [&](Value value) {
    return input(probe, fmt::format("{}", number++), value.type());
  };
  const std::vector<Value> factors{open(joint.product->inputs[0]), open(joint.product->inputs[1])};
  std::vector<Value> others;
  for (const size_t i : joint.others) others.push_back(open(joint.loop->inputs[i]));
  return has_kernel(add_joint(probe, joint, factors, others), backend);
}

// How many nodes and outputs read each node.
std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.nodes().size());
  const auto count = [&](Value value) { ++readers[static_cast<size_t>(value.node->id)]; };
  for (const auto& node : graph.nodes())
    for (const Value& value : node->inputs) count(value);
  for (const Output& output : graph.outputs()) count(output.value);
  return readers;
}

// The value before reshapes that nobody else reads.
Value behind_reshapes(Value value, const std::vector<int>& readers) {
  while (value.node->is<Reshape>() && readers[static_cast<size_t>(value.node->id)] == 1)
    value = value.node->inputs[0];
  return value;
}

// The last product that the loop alone reads and joins.
std::optional<Joint> find_joint(const Node& loop,
                                const std::vector<int>& readers,
                                Backend& backend) {
  std::optional<Joint> found;
  for (size_t i = 0; i < loop.inputs.size(); ++i) {
    const Node& product = *behind_reshapes(loop.inputs[i], readers).node;
    if (!is_product(product, backend) || readers[static_cast<size_t>(product.id)] != 1 ||
        (found && found->product->id > product.id))
      continue;
    auto joint = join(product, loop, i);
    if (joint && is_run_as_one(*joint, backend)) found = std::move(joint);
  }
  return found;
}

}  // namespace

bool fuse_epilogues(Graph& graph, PassContext& context) {
  const auto& outputs = graph.outputs();
  if (std::any_of(outputs.begin(), outputs.end(), [](const Output& output) {
        return !output.updates.empty();
      }))
    return false;
  const std::vector<int> readers = count_readers(graph);
  std::map<const Node*, Joint> joints;  // by loop
  std::set<const Node*> taken;          // products, and reshapes of them
  for (const auto& node : graph.nodes()) {
    if (!node->is<Fused>()) continue;
    if (auto joint = find_joint(*node, readers, context.backend)) {
      for (const Node* each = node->inputs[joint->number].node; each != joint->product;
           each = each->inputs[0].node)
        taken.insert(each);
      taken.insert(joint->product);
      joints.emplace(node.get(), std::move(*joint));
    }
  }
  if (joints.empty()) return false;
  Rewrite rewrite(graph);
  for (const auto& node : graph.nodes()) {
    if (taken.contains(node.get())) continue;  // its place is the loop's
    const auto joint = joints.find(node.get());
    if (joint == joints.end()) {
      rewrite.copy(*node);
      continue;
    }
    std::vector<Value> others;
    for (const size_t i : joint->second.others) others.push_back(rewrite.mapped(node->inputs[i]));
    Node& made = add_joint(
        rewrite.to(), joint->second, rewrite.mapped_inputs(*joint->second.product), others);
    std::vector<Value> results;
    for (size_t i = 0; i < made.outputs.size(); ++i)
      results.push_back({&made, static_cast<int>(i)});
    rewrite.replace(*node, std::move(results));
  }
  graph = rewrite.finish();
  return true;
}

}  // namespace ridge
