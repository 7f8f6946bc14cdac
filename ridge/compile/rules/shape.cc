// Rules for ops that move elements.
#include "ridge/graph/ops/shape.h"

#include <algorithm>

#include "ridge/compile/rules/rule.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/reduce.h"

namespace ridge {
namespace {

Value same_shape(const Node& node, std::span<const Value> in) {
  const bool moves = node.is<Reshape>() || node.is<Broadcast>() || node.is<Slice>() ||
                     node.is<Pad>() || (node.is<Concat>() && in.size() == 1);
  return moves && node.outputs[0] == in[0].type() ? in[0] : Value{};
}

Value double_reshape(const Node& node, std::span<const Value> in) {
  if (!in[0].node->is<Reshape>()) return {};
  return reshape(in[0].node->inputs[0], node.outputs[0].shape);
}

Value identity_transpose(const Node& node, std::span<const Value> in) {
  const auto& perm = node.op_as<Transpose>().perm;
  return std::is_sorted(perm.begin(), perm.end()) ? in[0] : Value{};
}

Value double_transpose(const Node& node, std::span<const Value> in) {
  if (!in[0].node->is<Transpose>()) return {};
  const auto& inner = in[0].node->op_as<Transpose>().perm;
  std::vector<int64_t> perm;
  for (int64_t axis : node.op_as<Transpose>().perm)
    perm.push_back(inner[static_cast<size_t>(axis)]);
  return transpose(in[0].node->inputs[0], std::move(perm));
}

// Elements keep their order when only axes of size 1 change places: no copy is needed.
Value transpose_is_reshape(const Node& node, std::span<const Value> in) {
  int64_t last = -1;
  for (int64_t axis : node.op_as<Transpose>().perm) {
    if (in[0].dim(axis) == 1) continue;
    if (axis < last) return {};
    last = axis;
  }
  return reshape(in[0], node.outputs[0].shape);
}

Value double_broadcast(const Node& node, std::span<const Value> in) {
  if (!in[0].node->is<Broadcast>()) return {};
  return broadcast(in[0].node->inputs[0], node.outputs[0].shape);
}

Value reshape_if_same_size(const Node& node, std::span<const Value> in) {
  if (in[0].type().elements() != node.outputs[0].elements()) return {};
  return reshape(in[0], node.outputs[0].shape);
}

Value trivial_max(const Node& node, std::span<const Value> in) {
  return reshape_if_same_size(node, in);
}

Value trivial_sum(const Node& node, std::span<const Value> in) {
  return node.is<ReduceSum>() || node.is<ReduceMean>() ? reshape_if_same_size(node, in) : Value{};
}

// The product reads its factors by strides anyway; the chain of sums over k stays the same.
Value transpose_into_matmul(const Node& node, std::span<const Value> in) {
  const bool a = swaps_last_axes(*in[0].node), b = swaps_last_axes(*in[1].node);
  if (!a && !b) return {};
  MatMul op = node.op_as<MatMul>();
  op.transpose_a ^= a;
  op.transpose_b ^= b;
  return add_node(std::move(op),
                  {a ? in[0].node->inputs[0] : in[0], b ? in[1].node->inputs[0] : in[1]});
}

// The source of `value` before a cast to f32 that kept every value, also where it was reshaped
// since; no value where there is none.
Value before_widening(Value value) {
  const Node& node = *value.node;
  if (node.is<Reshape>()) {
    const Value from = before_widening(node.inputs[0]);
    return from.node == nullptr ? Value{} : reshape(from, value.shape());
  }
  if (!node.is<Cast>() || value.dtype() != DType::kF32) return {};
  const Value from = node.inputs[0];
  return from.dtype() == DType::kBF16 || from.dtype() == DType::kF16 ? from : Value{};
}

Value cast_and_back_reshaped(const Node& node, std::span<const Value> in) {
  if (!in[0].node->is<Reshape>()) return {};
  const Value from = before_widening(in[0]);
  return from.node != nullptr && from.dtype() == node.outputs[0].dtype ? from : Value{};
}

// Wider numbers have the same order.
Value argmax_of_cast(const Node& node, std::span<const Value> in) {
  const Value from = before_widening(in[0]);
  return from.node == nullptr ? Value{} : add_node(ArgMax(node.op_as<ArgMax>()), {from});
}

// Loops pick from memory, and need not write f32 there for that.
Value pick_of_cast(const Node& node, std::span<const Value> in) {
  const Value from = before_widening(in[0]);
  return from.node == nullptr
             ? Value{}
             : cast(add_node(Pick(node.op_as<Pick>()), {from, in[1]}), DType::kF32);
}

constexpr SemanticClass kSame = SemanticClass::kBitIdentical;

constexpr Rule kRules[] = {
    {"cast_and_back_reshaped",
     "cast",
     kSame,
     "cast(reshape(cast(x, wider)), dtype of x) = reshape(x)",
     cast_and_back_reshaped},
    {"argmax_of_cast", "argmax", kSame, "argmax(cast(x, wider)) = argmax(x)", argmax_of_cast},
    {"pick_of_cast",
     "pick",
     kSame,
     "pick(cast(x, wider), i) = cast(pick(x, i), wider)",
     pick_of_cast},
    {"same_shape",
     "",
     kSame,
     "reshape(x, shape of x) = x, and so for others that move",
     same_shape},
    {"double_reshape", "reshape", kSame, "reshape(reshape(x)) = reshape(x)", double_reshape},
    {"identity_transpose", "transpose", kSame, "transpose(x, 0 1 2) = x", identity_transpose},
    {"double_transpose",
     "transpose",
     kSame,
     "transpose(transpose(x)) = transpose(x)",
     double_transpose},
    {"transpose_is_reshape",
     "transpose",
     kSame,
     "transpose(x) = reshape(x) when only axes of size 1 move",
     transpose_is_reshape},
    {"double_broadcast",
     "broadcast",
     kSame,
     "broadcast(broadcast(x)) = broadcast(x)",
     double_broadcast},
    {"trivial_max",
     "reduce_max",
     kSame,
     "reduce_max(x) over axes of size 1 = reshape(x)",
     trivial_max},
    {"trivial_sum",
     "",
     SemanticClass::kReassociation,
     "reduce_sum(x) over axes of size 1 = reshape(x), though 0 + -0 is +0",
     trivial_sum},
    {"transpose_into_matmul",
     "matmul",
     kSame,
     "matmul(transpose(a), b) = matmul(a, b) with transpose_a",
     transpose_into_matmul},
};

}  // namespace

std::span<const Rule> shape_rules() { return kRules; }

}  // namespace ridge
