// Scaled-dot-product attention as torch has it on a CPU, and its gradient.
#include "ridge/graph/ops/attention.h"

#include <cmath>
#include <limits>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/rewrite.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

bool is_number(Value value, double number) {
  while (value.node->is<Broadcast>()) value = value.node->inputs[0];
  return splat_of(value) == number;
}

// torch makes numbers of a mask of bool, as models do themselves: 0 for a key that a query may see,
// minus infinity for another one. The op takes it as it was, and differentiates that as a whole.
Value without_numbers(Value mask) {
  const Node& node = *mask.node;
  if (node.is<Broadcast>() && node.inputs[0].node->is<Where>()) {
    const Value before = without_numbers(node.inputs[0]);
    return before == node.inputs[0] ? mask : broadcast(before, mask.shape());
  }
  if (!node.is<Where>()) return mask;
  constexpr double kForbidden = -std::numeric_limits<double>::infinity();
  const auto has = [&](double first, double second) {
    return is_number(node.inputs[1], first) && is_number(node.inputs[2], second);
  };
  if (has(0, kForbidden)) return node.inputs[0];
  return has(kForbidden, 0) ? logical_not(node.inputs[0]) : mask;
}

// The arguments dropout_p, is_causal, attn_mask and scale, from `first` on; a mask of floats is a
// bias.
AttentionOptions options_of(const NodeContext& n, size_t first) {
  check(n.number_at(first) == 0.0, "it drops out");
  AttentionOptions options;
  options.causal = n.flag(first + 1);
  if (n.has(first + 3)) {
    options.scale = n.number_at(first + 3);
    check(options.scale != 0.0, "its scale is 0");
  }
  if (!n.has(first + 2)) return options;
  Value mask = without_numbers(n.value(first + 2));
  check(mask.rank() <= 4, "its mask has {} dimensions", mask.rank());
  Shape shape(static_cast<size_t>(4 - mask.rank()), 1);
  shape.insert(shape.end(), mask.shape().begin(), mask.shape().end());
  // Keys are never repeated.
  const int64_t keys = n.shape(first == 3 ? 1 : 2).at(2);
  mask = reshape(mask, shape);
  shape.back() = keys;
  options.mask = broadcast(mask, shape);
  return options;
}

void check_operands(const NodeContext& n, size_t first) {
  for (size_t i = first; i < first + 3; ++i)
    check(n.rank(i) == 4, "argument {} has {} dimensions", i, n.rank(i));
}

// (query, key, value, dropout_p, is_causal, attn_mask, scale) -> output, logsumexp
void attention_of(NodeContext& n) {
  check_operands(n, 0);
  const Value y = attention(n.value(0), n.value(1), n.value(2), options_of(n, 3));
  n.give(0, y);
  if (n.wants(1)) n.give(1, {y.node, 1});
}

// (grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, attn_mask, scale)
void attention_backward(NodeContext& n) {
  check_operands(n, 1);
  const AttentionOptions options = options_of(n, 6);
  const Value q = n.value(1), k = n.value(2), v = n.value(3), dy = n.value(0);
  std::vector<Value> gradients;
  if (options.mask && options.mask.dtype() != DType::kBool) {
    const size_t first = n.graph().nodes().size();
    gradients = gradients_of(attention(q, k, v, options), dy, {q, k, v}, first);
  } else {
    AttentionGrad op;
    op.causal = options.causal;
    op.scale =
        options.scale != 0.0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.dim(-1)));
    std::vector<Value> inputs{q, k, v, n.value(4), n.value(5), dy};
    if (options.mask) inputs.push_back(options.mask);
    Node& node = n.graph().add(std::make_shared<const AttentionGrad>(op), std::move(inputs));
    gradients = {{&node, 0}, {&node, 1}, {&node, 2}};
  }
  for (size_t i = 0; i < 3; ++i)
    if (n.wants(i)) n.give(i, gradients[i]);
}

constexpr OpRow kAttentionOps[] = {
    {"_scaled_dot_product_flash_attention_for_cpu.default", attention_of},
    {"_scaled_dot_product_flash_attention_for_cpu_backward.default", attention_backward},
};

}  // namespace

std::span<const OpRow> attention_ops() { return kAttentionOps; }

}  // namespace ridge::aten
