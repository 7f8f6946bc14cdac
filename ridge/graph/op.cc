#include "ridge/graph/op.h"

#include <algorithm>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/fields.h"
#include "ridge/graph/graph.h"
#include "ridge/graph/ops/registry.h"

namespace ridge {

Value VjpContext::in(size_t i) const { return node.inputs.at(i); }

Value VjpContext::out(size_t i) const { return {const_cast<Node*>(&node), static_cast<int>(i)}; }

Value VjpContext::dout(size_t i) const { return output_gradients[i]; }

std::vector<Value> Op::vjp(const VjpContext& context) const {
  check_internal(traits().gradient == Gradient::kExpand,
                 "[{}] no gradient rule, at site '{}'",
                 name(),
                 context.node.site.name);
  return expanded_vjp(context);
}

std::vector<Value> Op::expanded_vjp(const VjpContext& context) const {
  const std::vector<Value>& inputs = context.node.inputs;
  const size_t first_node = context.node.graph->nodes().size();
  const std::vector<Value> results = expand(inputs);
  check_internal(results.size() == context.node.outputs.size(),
                 "[{}] expand() gave {} results",
                 name(),
                 results.size());
  std::vector<Value> reached, seeds;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!context.dout(i)) continue;
    reached.push_back(results[i]);
    seeds.push_back(context.dout(i));
  }
  std::vector<Value> gradients = vector_jacobian_product(reached, seeds, inputs, first_node);
  // A value that is two inputs got its whole gradient in each place.
  for (size_t i = 1; i < inputs.size(); ++i)
    if (std::find(inputs.begin(), inputs.begin() + static_cast<int64_t>(i), inputs[i]) !=
        inputs.begin() + static_cast<int64_t>(i))
      gradients[i] = {};
  return gradients;
}

std::vector<Value> Op::expand(std::span<const Value>) const { return {}; }

double total_bytes(std::span<const TensorType> types) {
  double bytes = 0;
  for (const TensorType& type : types) bytes += static_cast<double>(type.bytes());
  return bytes;
}

Cost Op::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  double elements = 0;
  for (const TensorType& type : outputs) elements += static_cast<double>(type.elements());
  const bool computes = traits().op_class != OpClass::kMove;
  return {computes ? elements : 0.0, total_bytes(inputs) + total_bytes(outputs)};
}

std::string fields_text(const Op& op) {
  const std::shared_ptr<Op> defaults = registry().create(op.name());
  return fields_text(op, *defaults);
}

bool equal(const Op& a, const Op& b) {
  return &a == &b || (a.name() == b.name() && fields_text(a) == fields_text(b));
}

}  // namespace ridge
