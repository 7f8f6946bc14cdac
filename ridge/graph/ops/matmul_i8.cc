#include "ridge/graph/ops/matmul_i8.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

int64_t rows_of(const MatMulI8& op, const TensorType& a) {
  return a.shape[a.shape.size() - (op.transpose_a ? 1 : 2)];
}
int64_t columns_of(const MatMulI8& op, const TensorType& b) {
  return b.shape[b.shape.size() - (op.transpose_b ? 2 : 1)];
}
int64_t depth_of(const MatMulI8& op, const TensorType& a) {
  return a.shape[a.shape.size() - (op.transpose_a ? 2 : 1)];
}

}  // namespace

std::vector<TensorType> MatMulI8::infer(std::span<const TensorType> inputs) const {
  const TensorType &a = inputs[kA], &b = inputs[kB];
  const auto leading = [](const TensorType& x) {
    return Shape(x.shape.begin(), x.shape.end() - std::min<int64_t>(2, x.rank()));
  };
  check(a.rank() >= 2 && b.rank() >= 2 && (b.rank() == 2 || leading(a) == leading(b)),
        "[matmul_i8] leading dimensions differ, or fewer than two dimensions; got {} and {}",
        to_string(a),
        to_string(b));
  const int64_t depth = depth_of(*this, a), m = rows_of(*this, a), n = columns_of(*this, b);
  check(depth == b.shape[b.shape.size() - (transpose_b ? 1 : 2)],
        "[matmul_i8] inner dimensions differ; got {}{} and {}{}",
        to_string(a),
        transpose_a ? " transposed" : "",
        to_string(b),
        transpose_b ? " transposed" : "");
  check_inputs("matmul_i8", inputs, m, n);
  Shape shape = leading(a);
  shape.insert(shape.end(), {m, n});
  return {{to, shape}};
}

// Sums are exact in f64 up to depths of 2^37.
std::vector<Value> MatMulI8::expand(std::span<const Value> inputs) const {
  const auto minus_zero = [&](Value x, Value zero, bool lanes_first) {
    Value z = cast(zero, DType::kF64);
    if (z.rank() == 1 && lanes_first) z = reshape(z, {z.dim(0), 1});
    const Value wide = cast(x, DType::kF64);
    return wide - broadcast(z, wide.shape());
  };
  const Value a = minus_zero(inputs[kA], inputs[kAZero], !transpose_a);
  const Value b = minus_zero(inputs[kB], inputs[kBZero], transpose_b);
  const Value sum = cast(cast(matmul(a, b, transpose_a, transpose_b), DType::kI64), DType::kI32);
  return {result_of(sum, inputs)};
}

Cost MatMulI8::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  return {2.0 * static_cast<double>(depth_of(*this, inputs[kA])) *
              static_cast<double>(outputs[0].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> MatMulI8::batch_flow(const BatchFlowContext& c) const {
  const bool all_none = std::all_of(
      c.flows.begin(), c.flows.end(), [](const BatchFlow& flow) { return flow.is_none(); });
  if (all_none) return {BatchFlow::none()};
  const bool only_a = std::all_of(
      c.flows.begin() + 1, c.flows.end(), [](const BatchFlow& flow) { return flow.is_none(); });
  const int64_t rank = c.inputs[kA].rank(), row = rank - (transpose_a ? 1 : 2);
  if (only_a && c.flows[kA].is_split_on(row)) return {BatchFlow::split(rank - 2)};
  if (only_a && c.flows[kA].is_split() && c.flows[kA].axis < rank - 2) return {c.flows[kA]};
  return {BatchFlow::mixed("the product combines samples")};
}

void MatMulI8::fields(FieldVisitor& v) {
  v.visit("transpose_a", transpose_a);
  v.visit("transpose_b", transpose_b);
  visit_fields(v);
}

Value matmul_i8(
    Value a, Value b, Value a_zero, Value b_zero, const ScaledTo& to, bool transpose_b) {
  check(a.rank() >= 2 && b.rank() >= 2,
        "[matmul_i8] at least two dimensions are needed; got {} and {}",
        to_string(a.type()),
        to_string(b.type()));
  a_zero = zero_point_of(a_zero, a);
  b_zero = zero_point_of(b_zero, b);
  MatMulI8 op;
  op.transpose_b = transpose_b;
  Shape folded;  // the result's, where leading dimensions become rows
  if (b.rank() == 2 && a.rank() > 2 && a_zero.rank() == 0) {
    folded = a.shape();
    folded.back() = b.dim(transpose_b ? 0 : 1);
    a = reshape(a, {-1, a.dim(-1)});
  } else if (b.rank() > 2) {
    const Shape leading = broadcast_shape(Shape(a.shape().begin(), a.shape().end() - 2),
                                          Shape(b.shape().begin(), b.shape().end() - 2),
                                          "matmul_i8");
    const auto with_leading = [&](Value x) {
      Shape shape = leading;
      shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
      return broadcast(x, shape);
    };
    a = with_leading(a);
    b = with_leading(b);
  }
  std::vector<Value> inputs{a, b, a_zero, b_zero};
  to.apply(op, inputs);
  const Value y = add_node(std::move(op), inputs);
  return folded.empty() ? y : reshape(y, folded);
}

void register_matmul_i8(OpRegistry& r) { r.add<MatMulI8>(); }

}  // namespace ridge
