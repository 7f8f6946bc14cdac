#include "ridge/backend/cuda/print_kernel.h"

#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

LoopDomain rows_over_last_axis(const TensorType& type) {
  const int64_t columns = type.rank() == 0 ? 1 : type.shape.back();
  const int64_t elements = type.elements();
  if (columns < 2 || elements == columns) return {elements, 0};
  return {elements, columns};
}

// The domain of a body of this one op; none where a body cannot hold it.
LoopDomain domain_of(const Node& node) {
  if (is_loop_reduction(node)) {
    const int64_t elements = node.inputs[0].type().elements();
    const ReducedAxes axes = reduced_axes(node);
    if (axes.kind == ReducedAxes::kMixed) throw Refused{"reduces axes between others"};
    if (axes.kind == ReducedAxes::kAll) return {elements, 0};
    return {elements, axes.kind == ReducedAxes::kLast ? axes.reduced : axes.kept};
  }
  if (node.is<Pick>() || node.is<LayerNorm>() || node.is<RmsNorm>() || node.is<Softmax>())
    return rows_over_last_axis(node.inputs[0].type());
  return rows_over_last_axis(node.outputs[0]);
}

// Norms and softmax carry their plain form.
bool is_expanded(const Node& node) {
  return node.is<LayerNorm>() || node.is<RmsNorm>() || node.is<Softmax>();
}

// The node as the one node of a fused body.
Graph body_of(const Node& node) {
  Graph body("body");
  std::vector<Value> inputs;
  for (const Value& value : node.inputs)
    inputs.push_back(input(body, fmt::format("{}", inputs.size()), value.type()));
  if (is_expanded(node)) {
    const std::vector<Value> plain = node.op->expand(inputs);
    for (size_t i = 0; i < plain.size(); ++i) body.add_output(fmt::format("{}", i), plain[i]);
  } else {
    body.add_output("0", {&body.add(node.op, std::move(inputs)), 0});
  }
  return body;
}

PrintedKernel print_body(const FusedBody& body) {
  return body.domain.columns == 0 ? print_flat(body) : print_rows(body);
}

PrintedKernel print_single(const Node& node) {
  const bool is_known = is_fusible(node) || is_loop_reduction(node) || node.is<Broadcast>() ||
                        node.is<OneHot>() || node.is<Pick>() || is_expanded(node);
  if (!is_known || node.outputs.size() != 1)
    throw Refused{fmt::format("is {}, which is no loop over elements", node.op->name())};
  // Fused again only to have the body read and checked.
  Graph graph("one");
  std::vector<Value> inputs;
  for (const Value& value : node.inputs)
    inputs.push_back(input(graph, fmt::format("{}", inputs.size()), value.type()));
  const bool has_rows = !is_fusible(node) && !node.is<Broadcast>();
  const Node& made = fused(graph,
                           body_of(node),
                           std::move(inputs),
                           node.site,
                           has_rows ? domain_of(node) : LoopDomain{});
  PrintedKernel kernel = print_body(read_body(made.op_as<Fused>()));
  kernel.same_bits = !is_expanded(node);
  return kernel;
}

}  // namespace

Printing print_kernel(const Node& node) {
  try {
    if (node.is<Fused>()) return {print_body(read_body(node.op_as<Fused>())), {}};
    return {print_single(node), {}};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  } catch (const UserError& error) {
    return {std::nullopt, fmt::format("has no fused body: {}", error.message())};
  }
}

}  // namespace ridge::cuda
