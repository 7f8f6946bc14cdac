#include "ridge/graph/ops/matmul.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"

namespace ridge {

DType accumulate_dtype(DType dtype) { return dtype == DType::kF64 ? DType::kF64 : DType::kF32; }

std::vector<TensorType> MatMul::infer(std::span<const TensorType> inputs) const {
  const TensorType &a = inputs[0], &b = inputs[1];
  const auto rank = a.shape.size();
  check(a.dtype == b.dtype, "[matmul] dtypes differ; got {} and {}", to_string(a), to_string(b));
  check(accumulate == accumulate_dtype(a.dtype),
        "[matmul] accumulate does not fit the inputs; got {} for {}",
        name_of(accumulate),
        to_string(a));
  check(round_to == DType::kF32 ||
            (a.dtype == DType::kF32 && size_of(round_to) == 2 && is_float(round_to)),
        "[matmul] only f32 is rounded, and only to f16 or bf16; got {} to {}",
        to_string(a),
        name_of(round_to));
  check(!tf32 || (a.dtype == DType::kF32 && round_to == DType::kF32),
        "[matmul] TF32 is for f32 that is not rounded otherwise; got {} and round_to {}",
        to_string(a),
        name_of(round_to));
  check(!f32_result || size_of(a.dtype) == 2,
        "[matmul] f32_result is for 16-bit inputs; got {}",
        to_string(a));
  const bool fits = rank >= 2 && b.shape.size() == rank &&
                    std::equal(a.shape.begin(), a.shape.end() - 2, b.shape.begin());
  check(fits,
        "[matmul] leading dimensions differ, or fewer than two dimensions; got {} and {}",
        to_string(a),
        to_string(b));
  const int64_t m = a.shape[rank - (transpose_a ? 1 : 2)],
                ka = a.shape[rank - (transpose_a ? 2 : 1)];
  const int64_t n = b.shape[rank - (transpose_b ? 2 : 1)],
                kb = b.shape[rank - (transpose_b ? 1 : 2)];
  check(ka == kb,
        "[matmul] inner dimensions differ; got {}{} and {}{}",
        to_string(a),
        transpose_a ? " transposed" : "",
        to_string(b),
        transpose_b ? " transposed" : "");
  Shape shape(a.shape.begin(), a.shape.end() - 2);
  shape.insert(shape.end(), {m, n});
  return {{f32_result ? DType::kF32 : a.dtype, shape}};
}

std::vector<Value> MatMul::vjp(const VjpContext& c) const {
  const Value a = c.in(0), b = c.in(1), dy = cast(c.dout(), a.dtype());
  const auto product = [this](Value left, Value right, bool transpose_left, bool transpose_right) {
    MatMul op = *this;
    op.f32_result = false;
    op.transpose_a = transpose_left;
    op.transpose_b = transpose_right;
    return add_node(std::move(op), {left, right});
  };
  // op(A) gets dY op(B)^T and op(B) gets op(A)^T dY; a transposed input gets the transposed form.
  const Value da =
      transpose_a ? product(b, dy, transpose_b, true) : product(dy, b, false, !transpose_b);
  const Value db =
      transpose_b ? product(dy, a, true, transpose_a) : product(a, dy, !transpose_a, false);
  return {da, db};
}

Cost MatMul::cost(std::span<const TensorType> inputs, std::span<const TensorType> outputs) const {
  const Shape& a = inputs[0].shape;
  const int64_t k = a[a.size() - (transpose_a ? 2 : 1)];
  return {2.0 * static_cast<double>(k) * static_cast<double>(outputs[0].elements()),
          total_bytes(inputs) + total_bytes(outputs)};
}

std::vector<BatchFlow> MatMul::batch_flow(const BatchFlowContext& c) const {
  const int64_t rank = c.inputs[0].rank();
  const BatchFlow &a = c.flows[0], &b = c.flows[1];
  if (a.is_none() && b.is_none()) return {BatchFlow::none()};
  const int64_t row_a = rank - (transpose_a ? 1 : 2), k_a = rank - (transpose_a ? 2 : 1);
  const int64_t column_b = rank - (transpose_b ? 2 : 1), k_b = rank - (transpose_b ? 1 : 2);
  if (a.is_split_on(row_a) && b.is_none()) return {BatchFlow::split(rank - 2)};
  if (b.is_split_on(column_b) && a.is_none()) return {BatchFlow::split(rank - 1)};
  // Both carry the batch on the inner dimension: products summed over samples.
  if (a.is_split_on(k_a) && b.is_split_on(k_b)) return {BatchFlow::sum()};
  // A leading dimension: as in an elementwise op.
  const BatchFlow leading = merge_elementwise(c);
  if (leading.is_split() && leading.axis < rank - 2) return {leading};
  return {BatchFlow::mixed("the product combines samples")};
}

void MatMul::fields(FieldVisitor& v) {
  v.visit("transpose_a", transpose_a);
  v.visit("transpose_b", transpose_b);
  v.visit("accumulate", accumulate);
  v.visit("round_to", round_to);
  v.visit("tf32", tf32);
  v.visit("f32_result", f32_result);
}

namespace {

Value matmul_node(Value a, Value b, bool transpose_a, bool transpose_b) {
  MatMul op;
  op.transpose_a = transpose_a;
  op.transpose_b = transpose_b;
  op.accumulate = accumulate_dtype(a.dtype());
  return add_node(std::move(op), {a, b});
}

}  // namespace

Value matmul(Value a, Value b, bool transpose_a, bool transpose_b) {
  check(a.rank() >= 2 && b.rank() >= 2,
        "[matmul] at least two dimensions are needed; got {} and {}",
        to_string(a.type()),
        to_string(b.type()));
  if (b.rank() == 2 && a.rank() > 2 && !transpose_a) {
    Shape shape = a.shape();
    const Value y = matmul_node(reshape(a, {-1, a.dim(-1)}), b, false, transpose_b);
    shape.back() = y.dim(-1);
    return reshape(y, shape);
  }
  const Shape leading = broadcast_shape(Shape(a.shape().begin(), a.shape().end() - 2),
                                        Shape(b.shape().begin(), b.shape().end() - 2),
                                        "matmul");
  const auto with_leading = [&](Value x) {
    Shape shape = leading;
    shape.insert(shape.end(), x.shape().end() - 2, x.shape().end());
    return broadcast(x, shape);
  };
  return matmul_node(with_leading(a), with_leading(b), transpose_a, transpose_b);
}

void register_matmul(OpRegistry& r) { r.add<MatMul>(); }

}  // namespace ridge
