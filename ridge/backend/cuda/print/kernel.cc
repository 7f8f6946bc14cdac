#include "ridge/backend/cuda/print/kernel.h"

#include <algorithm>

#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

PrintedKernel print_body(const FusedBody& body, Functions functions, const DeviceLimits& limits) {
  return body.domain.columns == 0 ? print_flat(body, functions)
                                  : print_rows(body, functions, limits);
}

// Functions of f64, and powers, are CUDA's own, whose last bits are not those of the C library.
bool calls_wide_functions(const Graph& body) {
  for (const auto& node : body.nodes())
    if (needs_functions(*node) && (node->inputs[0].dtype() == DType::kF64 || node->is<Pow>()))
      return true;
  return false;
}

// A function of a row is computed once for all of its elements: how is no matter.
bool calls_approx_functions(const FusedBody& body) {
  return std::ranges::any_of(body.graph.nodes(), [&](const auto& node) {
    return is_domain(body.role(*node)) && has_approx_form(*node);
  });
}

PrintedKernel print_fused(const Fused& op, Functions functions, const DeviceLimits& limits) {
  const FusedBody& body = read_body(op);
  const bool is_approx = functions == Functions::kApprox;
  if (is_approx && !calls_approx_functions(body))
    throw Refused{"calls no function that the device approximates"};
  PrintedKernel kernel = print_body(body, functions, limits);
  kernel.same_bits = !is_approx && !calls_wide_functions(body.graph);
  return kernel;
}

PrintedKernel print_fused_each(const Node& node) {
  const auto& op = node.op_as<FusedEach>();
  const EachBody& each = read_body(op);
  std::vector<int64_t> lengths;
  for (size_t tensor = 0; tensor < each.tensors(node.inputs.size()); ++tensor)
    lengths.push_back(node.inputs[each.operand(tensor, each.shared)].type().elements());
  const std::shared_ptr<const Fused> first = fused_of(op, {lengths.front()});
  const FusedBody& body = read_body(*first);
  PrintedKernel kernel = print_list(body, each.shared, std::move(lengths));
  kernel.same_bits = !calls_wide_functions(body.graph);
  return kernel;
}

// An elementwise op, or one over rows, as the body of a fused node: only to have it read and
// checked.
PrintedKernel print_single(const Node& node, Functions functions, const DeviceLimits& limits) {
  const bool has_rows = node.is<MaskColumns>();
  if (!is_fusible(node) && !node.is<Broadcast>() && !has_rows)
    throw Refused{fmt::format("is {}, which has no kernel of its own", node.op->name())};
  Graph body("body"), graph("one");
  std::vector<Value> inputs, own;
  for (const Value& value : node.inputs) {
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(body, name, value.type()));
    own.push_back(input(graph, name, value.type()));
  }
  body.add_output("0", {&body.add(node.op, std::move(inputs)), 0});
  LoopDomain domain;
  if (has_rows) domain = {node.outputs[0].elements(), node.outputs[0].shape.back()};
  return print_fused(
      fused(graph, body, std::move(own), node.site, domain).op_as<Fused>(), functions, limits);
}

// Families of ops that have kernels of their own.
using PrintFamily = std::optional<PrintedKernel> (*)(const Node&);
constexpr PrintFamily kFamilies[] = {
    print_source,
    print_move,
    print_gather,
    print_scatter,
    print_reduction,
    print_norm,
};

PrintedKernel print_any(const Node& node, const DeviceLimits& limits) {
  if (node.is<Fused>()) return print_fused(node.op_as<Fused>(), Functions::kOfCpu, limits);
  if (node.is<FusedEach>()) return print_fused_each(node);
  for (const PrintFamily print : kFamilies)
    if (std::optional<PrintedKernel> kernel = print(node)) return std::move(*kernel);
  if (node.is<MatMul>()) return print_matmul(node, limits);
  return print_single(node, Functions::kOfCpu, limits);
}

PrintedKernel print_any_approx(const Node& node, const DeviceLimits& limits) {
  if (node.is<Fused>()) return print_fused(node.op_as<Fused>(), Functions::kApprox, limits);
  if (!has_approx_form(node))
    throw Refused{fmt::format("is {}, which calls no function that the device approximates",
                              node.op->name())};
  return print_single(node, Functions::kApprox, limits);
}

PrintedKernel print_any_mma(const Node& node, const DeviceLimits& limits) {
  if (std::optional<PrintedKernel> kernel = print_attention_mma(node, limits))
    return std::move(*kernel);
  throw Refused{fmt::format("is {}, which has no kernel for tensor cores", node.op->name())};
}

using Print = PrintedKernel(const Node&, const DeviceLimits&);

Printing printing_of(Print* print, const Node& node, const DeviceLimits& limits) {
  try {
    return {print(node, limits), {}};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  } catch (const UserError& error) {
    return {std::nullopt, fmt::format("has no fused body: {}", error.message())};
  }
}

}  // namespace

Printing print_kernel(const Node& node, const DeviceLimits& limits) {
  return printing_of(print_any, node, limits);
}
Printing print_mma_kernel(const Node& node, const DeviceLimits& limits) {
  return printing_of(print_any_mma, node, limits);
}
Printing print_approx_kernel(const Node& node, const DeviceLimits& limits) {
  return printing_of(print_any_approx, node, limits);
}

}  // namespace ridge::cuda
