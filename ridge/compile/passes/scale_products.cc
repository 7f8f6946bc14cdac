// Products of bytes give the numbers that a model makes of their sums itself, as one does that
// quantizes what it multiplies when it runs:
//
//   s = matmul_i8(a, b)                         y = matmul_i8[f32](a, b, scale, bias)
//   x = cast(reshape(s), f32) * scale    ->     y = reshape(y)
//   y = x + bias
//
// The same operations in the same order make a number, so that it has the same bits.
#include <optional>
#include <vector>

#include "ridge/compile/pass.h"
#include "ridge/compile/passes/pattern.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/rewrite.h"

namespace ridge {
namespace {

// The scale and the bias that a node gives the sums of a product.
struct Scaled {
  const Node* product = nullptr;
  Value scale, bias;
};

const ProductI8* product_of(const Node& node) {
  if (node.is<MatMulI8>()) return &node.op_as<MatMulI8>();
  return node.is<Conv2dI8>() ? &node.op_as<Conv2dI8>() : nullptr;
}

// The product whose sums, as f32, the value has in the same columns; null for other values.
const Node* product_behind(Value value, const Readers& readers) {
  const Node* node = value.node;
  if (!node->is<Cast>() || value.dtype() != DType::kF32 || !readers.is_read_once(value))
    return nullptr;
  Value sums = node->inputs[0];
  const int64_t columns = value.rank() == 0 ? 1 : value.dim(-1);
  while (sums.node->is<Reshape>() && readers.is_read_once(sums)) sums = sums.node->inputs[0];
  const ProductI8* const product = product_of(*sums.node);
  const bool has_sums = product != nullptr && product->to == DType::kI32;
  return has_sums && readers.is_read_once(sums) && sums.dim(-1) == columns ? sums.node : nullptr;
}

// One number for each column, or, where `may_be_one`, one for all; null for other values.
Value of_columns(Value value, int64_t columns, bool may_be_one) {
  const Value base = before_broadcast(value);
  if (base.dtype() != DType::kF32) return {};
  const int64_t count = base.type().elements();
  if (may_be_one && count == 1) return base;
  return count == columns && base.rank() > 0 && base.dim(-1) == columns ? base : Value{};
}

int64_t columns_of(const Node& product) { return product.outputs[0].shape.back(); }

Scaled product_of_sums(const Node& node, const Readers& readers) {
  if (!node.is<Mul>()) return {};
  for (const size_t i : {size_t{0}, size_t{1}}) {
    const Node* const product = product_behind(node.inputs[i], readers);
    if (product == nullptr) continue;
    if (const Value scale = of_columns(node.inputs[1 - i], columns_of(*product), true))
      return {.product = product, .scale = scale, .bias = {}};
  }
  return {};
}

Scaled scaled(const Node& node, const Readers& readers) {
  if (!node.is<Add>()) return product_of_sums(node, readers);
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (!readers.is_read_once(node.inputs[i])) continue;
    Scaled found = product_of_sums(*node.inputs[i].node, readers);
    if (found.product == nullptr) continue;
    found.bias = of_columns(node.inputs[1 - i], columns_of(*found.product), false);
    if (found.bias) return found;
  }
  return {};
}

Value made(const Node& node, const Scaled& found, Rewrite& rewrite) {
  const SiteScope scope(rewrite.to(), node.site.name, SiteScope::Path::kAbsolute);
  std::vector<Value> inputs = rewrite.mapped_inputs(*found.product);
  const Value scale = rewrite.mapped(found.scale);
  const int64_t count = scale.type().elements();
  inputs.push_back(reshape(scale, count == 1 ? Shape{} : Shape{count}));
  if (found.bias)
    inputs.push_back(reshape(rewrite.mapped(found.bias), {columns_of(*found.product)}));
  const auto remade = [&](auto op) {
    op.to = DType::kF32;
    return reshape(add_node(std::move(op), inputs), node.outputs[0].shape);
  };
  return found.product->is<MatMulI8>() ? remade(found.product->op_as<MatMulI8>())
                                       : remade(found.product->op_as<Conv2dI8>());
}

}  // namespace

bool scale_products(Graph& graph, PassContext&) {
  const Readers readers(graph);
  Rewrite rewrite(graph);
  bool changed = false;
  for (const auto& node : graph.nodes()) {
    const Scaled found = scaled(*node, readers);
    if (found.product == nullptr) {
      rewrite.copy(*node);
      continue;
    }
    rewrite.replace(*node, {made(*node, found, rewrite)});
    changed = true;
  }
  if (changed) graph = rewrite.finish();
  return changed;
}

}  // namespace ridge
