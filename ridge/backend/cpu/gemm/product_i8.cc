#include "ridge/backend/cpu/gemm/product_i8.h"

#include "ridge/backend/cpu/gemm/gemm_plan.h"
#include "ridge/backend/cpu/isa/gemm/gemm_i8_kernels.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cpu {
namespace {

// The ops that make of op(B) what pack_i8() makes of it.
Value packed(Value b, const GemmShape& shape) {
  if (b.dtype() == DType::kU8) b = cast(cast(b, DType::kI16) - 128.0, DType::kI8);
  const bool along = shape.transpose_b;
  const int64_t tiles = ceil_div(shape.k, kI8Steps), panels = ceil_div(shape.n, kI8Lanes);
  const int64_t more_steps = tiles * kI8Steps - shape.k;
  const int64_t more_columns = panels * kI8Lanes - shape.n;
  Value sums = reduce_sum(cast(b, DType::kI32), {along ? 1 : 0});
  if (more_columns > 0) sums = pad(sums, {0}, {more_columns});
  if (more_steps > 0 || more_columns > 0)
    b = pad(b,
            {0, 0},
            along ? std::vector{more_columns, more_steps} : std::vector{more_steps, more_columns});
  if (along)
    b = transpose(reshape(b, {panels, kI8Lanes, tiles, 16, 4}), {0, 2, 3, 1, 4});
  else
    b = transpose(reshape(b, {tiles, 16, 4, panels, kI8Lanes}), {3, 0, 1, 4, 2});
  return concat({reshape(b, {-1}), reshape(bytes_of_i32(sums), {-1})}, 0);
}

bool is_each(const Node& node, size_t input) { return node.inputs[input].rank() == 1; }

}  // namespace

I8Arguments::I8Arguments(const Node& node, const ProductI8& op)
    : to_(op.to),
      is_scaled_(op.is_scaled()),
      is_rounded_(op.is_rounded()),
      low_(is_rounded_ ? static_cast<int32_t>(op.low()) : 0),
      high_(is_rounded_ ? static_cast<int32_t>(op.high()) : 0),
      a_zero_each_(is_each(node, ProductI8::kAZero)),
      b_zero_each_(is_each(node, ProductI8::kBZero)),
      scale_each_(is_scaled_ && is_each(node, ProductI8::kScale)),
      bias_(is_scaled_ && node.inputs.size() > op.bias() ? op.bias() : 0),
      bias_is_of_sum_(bias_ != 0 && node.inputs[bias_].dtype() == DType::kI32) {}

I8Operands I8Arguments::operands(const KernelArgs& args, int64_t column) const {
  const auto* const b_zero = static_cast<const uint8_t*>(args.inputs[ProductI8::kBZero]);
  return {.a = args.inputs[ProductI8::kA],
          .b = args.inputs[ProductI8::kB],
          .a_zero = {args.inputs[ProductI8::kAZero], a_zero_each_},
          .b_zero = {b_zero + (b_zero_each_ ? column : 0), b_zero_each_}};
}

I8Results I8Arguments::results(const KernelArgs& args, int64_t column) const {
  I8Results results{
      .c = static_cast<char*>(args.outputs[0]) + column * static_cast<int64_t>(size_of(to_)),
      .dtype = to_};
  results.has_scale_each_column = scale_each_;
  if (is_scaled_)
    results.column_scale =
        static_cast<const float*>(args.inputs[ProductI8::kScale]) + (scale_each_ ? column : 0);
  if (bias_ != 0 && bias_is_of_sum_)
    results.sum_bias = static_cast<const int32_t*>(args.inputs[bias_]) + column;
  if (bias_ != 0 && !bias_is_of_sum_)
    results.bias = static_cast<const float*>(args.inputs[bias_]) + column;
  if (!is_rounded_) return results;
  const void* const zero = args.inputs[ProductI8::kZero];
  results.zero = to_ == DType::kI8 ? int32_t{*static_cast<const int8_t*>(zero)}
                                   : int32_t{*static_cast<const uint8_t*>(zero)};
  results.low = low_;
  results.high = high_;
  return results;
}

PackedOperand packed_i8_operand(const GemmShape& shape) {
  return {.input = ProductI8::kB,
          .layout = shape.transpose_b ? "i8.t" : "i8",
          .pack =
              [shape](Value b) {
                const Shape matrix =
                    shape.transpose_b ? Shape{shape.n, shape.k} : Shape{shape.k, shape.n};
                return packed(b.shape() == matrix ? b : reshape(b, matrix), shape);
              },
          .only_constants = true};
}

}  // namespace ridge::cpu
