#include "ridge/backend/cuda/print_kernel.h"

#include <algorithm>

#include "ridge/backend/cuda/kernel_text.h"
#include "ridge/graph/ops/fused_each.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge::cuda {
namespace {

PrintedKernel print_body(const FusedBody& body, Functions functions) {
  return body.domain.columns == 0 ? print_flat(body, functions) : print_rows(body, functions);
}

// Functions of f64 are CUDA's own, whose last bits are not those of the C library.
bool calls_wide_functions(const Graph& body) {
  for (const auto& node : body.nodes())
    if (!node->inputs.empty() && node->inputs[0].dtype() == DType::kF64 && needs_functions(*node))
      return true;
  return false;
}

// A function of a row is computed once for all of its elements: how is no matter.
bool calls_approx_functions(const FusedBody& body) {
  return std::ranges::any_of(body.graph.nodes(), [&](const auto& node) {
    return is_domain(body.role(*node)) && has_approx_form(*node);
  });
}

PrintedKernel print_fused(const Fused& op, Functions functions) {
  const FusedBody& body = read_body(op);
  const bool is_approx = functions == Functions::kApprox;
  if (is_approx && !calls_approx_functions(body))
    throw Refused{"calls no function that the device approximates"};
  PrintedKernel kernel = print_body(body, functions);
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

// An elementwise op, as the body of a fused node: only to have it read and checked.
PrintedKernel print_single(const Node& node, Functions functions) {
  if (!is_fusible(node) && !node.is<Broadcast>())
    throw Refused{fmt::format("is {}, which has no kernel of its own", node.op->name())};
  Graph body("body"), graph("one");
  std::vector<Value> inputs, own;
  for (const Value& value : node.inputs) {
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(body, name, value.type()));
    own.push_back(input(graph, name, value.type()));
  }
  body.add_output("0", {&body.add(node.op, std::move(inputs)), 0});
  return print_fused(fused(graph, body, std::move(own), node.site).op_as<Fused>(), functions);
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
    print_batch_norm,
    print_pool,
    print_convolution,
    print_matmul,
    print_attention,
    print_attention_grad,
};

PrintedKernel print_any(const Node& node) {
  if (node.is<Fused>()) return print_fused(node.op_as<Fused>(), Functions::kOfCpu);
  if (node.is<FusedEach>()) return print_fused_each(node);
  for (const PrintFamily print : kFamilies)
    if (std::optional<PrintedKernel> kernel = print(node)) return std::move(*kernel);
  return print_single(node, Functions::kOfCpu);
}

PrintedKernel print_any_approx(const Node& node) {
  if (node.is<Fused>()) return print_fused(node.op_as<Fused>(), Functions::kApprox);
  if (!has_approx_form(node))
    throw Refused{fmt::format("is {}, which calls no function that the device approximates",
                              node.op->name())};
  return print_single(node, Functions::kApprox);
}

// Those for tensor cores.
constexpr PrintFamily kMmaFamilies[] = {
    print_attention_mma,
    print_matmul_mma,
};

PrintedKernel print_any_mma(const Node& node) {
  for (const PrintFamily print : kMmaFamilies)
    if (std::optional<PrintedKernel> kernel = print(node)) return std::move(*kernel);
  throw Refused{fmt::format("is {}, which has no kernel for tensor cores", node.op->name())};
}

Printing printing_of(PrintedKernel (*print)(const Node&), const Node& node) {
  try {
    return {print(node), {}};
  } catch (const Refused& refused) {
    return {std::nullopt, refused.why};
  } catch (const UserError& error) {
    return {std::nullopt, fmt::format("has no fused body: {}", error.message())};
  }
}

}  // namespace

Printing print_mma_kernel(const Node& node) { return printing_of(print_any_mma, node); }
Printing print_approx_kernel(const Node& node) { return printing_of(print_any_approx, node); }
Printing print_kernel(const Node& node) { return printing_of(print_any, node); }

}  // namespace ridge::cuda
