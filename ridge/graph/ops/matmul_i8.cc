#include "ridge/graph/ops/matmul_i8.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/registry.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

// A scalar, or one number for each of `count` lanes.
void check_lanes(std::string_view what, const TensorType& x, DType dtype, int64_t count) {
  check(x.dtype == dtype && (x.rank() == 0 || x.shape == Shape{count}),
        "[matmul_i8] {} must be {} of the shape () or ({}); got {}",
        what,
        name_of(dtype),
        count,
        to_string(x));
}

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
  check(is_byte(a.dtype) && is_byte(b.dtype),
        "[matmul_i8] factors must be i8 or u8; got {} and {}",
        to_string(a),
        to_string(b));
  check(to == DType::kI32 || to == DType::kF32 || is_byte(to),
        "[matmul_i8] results are i32, f32, i8 or u8; got {}",
        name_of(to));
  const size_t least = is_rounded() ? 6 : is_scaled() ? 5 : 4;
  check(inputs.size() == least || (is_scaled() && inputs.size() == least + 1),
        "[matmul_i8] results of {} take {} inputs{}; got {}",
        name_of(to),
        least,
        is_scaled() ? ", or one more" : "",
        inputs.size());
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
  check_lanes("the zero point of a", inputs[kAZero], a.dtype, m);
  check_lanes("the zero point of b", inputs[kBZero], b.dtype, n);
  if (is_scaled()) check_lanes("the scale", inputs[kScale], DType::kF32, n);
  if (is_rounded())
    check(inputs[kZero] == TensorType{to, {}},
          "[matmul_i8] the zero point of the result must be a scalar of {}; got {}",
          name_of(to),
          to_string(inputs[kZero]));
  if (inputs.size() > least)
    check(inputs[bias()] == TensorType{DType::kF32, {n}},
          "[matmul_i8] the bias must be f32 of the shape ({}); got {}",
          n,
          to_string(inputs[bias()]));
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
  if (!is_scaled()) return {sum};
  const auto like = [&](Value x) { return broadcast(x, sum.shape()); };
  Value x = cast(sum, DType::kF32) * like(inputs[kScale]);
  if (inputs.size() > bias()) x = x + like(inputs[bias()]);
  if (!is_rounded()) return {x};
  // Between these limits adding and taking 1.5 * 2^23 rounds to whole numbers.
  constexpr double kWhole = 12582912.0;
  const double least = to == DType::kI8 ? -128 : 0;
  const Value zero = cast(inputs[kZero], DType::kF32);
  x = minimum(maximum(x, like(least - zero)), like((least + 255) - zero));
  return {cast(((x + kWhole) - kWhole) + like(zero), to)};
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
  v.visit("to", to);
}

Value matmul_i8(
    Value a, Value b, Value a_zero, Value b_zero, const ScaledTo& to, bool transpose_b) {
  check(a.rank() >= 2 && b.rank() >= 2,
        "[matmul_i8] at least two dimensions are needed; got {} and {}",
        to_string(a.type()),
        to_string(b.type()));
  const auto zero_of = [](Value zero, Value factor) {
    return zero ? zero : constant(factor.graph(), {factor.dtype(), {}}, 0.0);
  };
  a_zero = zero_of(a_zero, a);
  b_zero = zero_of(b_zero, b);
  MatMulI8 op;
  op.to = to.dtype;
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
  if (op.is_scaled()) inputs.push_back(to.scale);
  if (op.is_rounded()) inputs.push_back(to.zero);
  if (op.is_scaled() && to.bias) inputs.push_back(to.bias);
  const Value y = add_node(std::move(op), inputs);
  return folded.empty() ? y : reshape(y, folded);
}

void register_matmul_i8(OpRegistry& r) { r.add<MatMulI8>(); }

}  // namespace ridge
