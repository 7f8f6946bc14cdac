// Operators of quantized models: numbers as integers with a scale and a zero point, and products of
// such integers.
#include "ridge/import/onnx/ops/quantize.h"

#include <algorithm>

#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/ops/windows.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/onnx/elements.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/window.h"

namespace ridge::onnx {
namespace {

bool is_quantized(DType dtype) {
  return dtype == DType::kI8 || dtype == DType::kU8 || dtype == DType::kI16 || dtype == DType::kU16;
}

// Scales or zero points of `x`: one for all, one for each element along the axis `axis`, or, with
// `block_size`, one for each block of so many elements along it.
Value spread(NodeContext& n, size_t input, const Shape& x) {
  const Value scale = n.value(input);
  const auto rank = std::ssize(x);
  if (scale.type().elements() == 1) return broadcast(reshape(scale, {}), x);
  int64_t axis = n.integer("axis", 1);
  if (axis < 0) axis += rank;
  check(axis >= 0 && axis < rank, "its axis is not one of {} dimensions", rank);
  const auto at = static_cast<size_t>(axis);
  const int64_t block = n.integer("block_size", 0);
  if (block == 0) {
    check(scale.shape() == Shape{x[at]}, "input {} is not of the axis {}", input, axis);
    Shape shape(x.size(), 1);
    shape[at] = x[at];
    return broadcast(reshape(scale, shape), x);
  }
  Shape blocks = x;
  check(block > 0 && block <= x[at], "block_size is {}", block);
  blocks[at] = (x[at] + block - 1) / block;
  check(scale.shape() == blocks, "input {} is not of blocks of {} elements", input, block);
  Shape apart = blocks, wide = blocks;
  apart.insert(apart.begin() + axis + 1, 1);
  Shape repeated = apart;
  repeated[at + 1] = block;
  wide[at] *= block;
  const Value all = reshape(broadcast(reshape(scale, apart), repeated), wide);
  return slice(all, axis, 0, x[at]);
}

// The dtype of an attribute; that of `fallback` where it is absent or 0.
DType dtype_attribute(const NodeContext& n, std::string_view name, DType fallback) {
  const int64_t type = n.integer(name, 0);
  if (type == 0) return fallback;
  const std::optional<DType> dtype = dtype_of_onnx(type);
  check(dtype.has_value(), "its {} is {}", name, onnx_type_name(type));
  return *dtype;
}

// The whole number nearest to x, of two the even one, plus the zero point, which is in f32 and may
// be null, as `to`, of 8 or 16 bits: saturating, 0 for NaN.
Value rounded(Value x, Value zero, DType to) {
  const bool is_signed = to == DType::kI8 || to == DType::kI16;
  const double count = size_of(to) == 1 ? 256 : 65536, least = is_signed ? -count / 2 : 0;
  x = cast(x, DType::kF32);
  if (!zero) zero = constant_like(x, 0.0);
  x = minimum(maximum(x, least - zero), (least + count - 1) - zero);
  // Between these limits adding and taking 1.5 * 2^23 rounds in f32. The half beyond changes
  // nothing then; it rounds where the model is computed in f64.
  constexpr double kWhole = 12582912.0;
  const Value whole = (x + kWhole) - kWhole + zero;
  return cast(whole + (is_signed ? sign(whole) * 0.5 : constant_like(whole, 0.5)), to);
}

bool is_same(const DatumPtr& a, const DatumPtr& b) {
  if (a == b) return true;
  if (a == nullptr || b == nullptr || !a->known || !b->known) return false;
  const Bytes left = a->known->bytes(), right = b->known->bytes();
  return a->known->type() == b->known->type() &&
         std::equal(left.begin(), left.end(), right.begin(), right.end());
}

// The integers that the input was made of, where one scale and zero point would give them again:
// (q * s) / s is nearer to q than to any other whole number.
const DatumPtr* given_again(NodeContext& n, DType to) {
  const Dequantized* const from = n.datum(0)->dequantized.get();
  const DatumPtr zero = n.has(2) ? n.datum(2) : nullptr;
  if (from == nullptr || size_of(to) != 1 || from->integers->dtype != to) return nullptr;
  if (n.dtype(0) != DType::kF32 || n.dtype(1) != DType::kF32 || n.has_attribute("precision"))
    return nullptr;
  const bool has_one = numel(from->scale->shape) == 1 && numel(n.shape(1)) == 1;
  const Known* const scale = n.known(1);
  const bool is_usual = scale != nullptr && scale->at(0) > 1e-30 && scale->at(0) < 1e30;
  return has_one && is_usual && is_same(from->scale, n.datum(1)) && is_same(from->zero, zero)
             ? &from->integers
             : nullptr;
}

// The product of bytes in f32 that x is, maybe under another shape; else null.
const Node* product_behind(Value x) {
  const Node* node = x.node;
  while (node->is<Reshape>()) node = node->inputs[0].node;
  return node->is<MatMulI8>() && node->op_as<MatMulI8>().to == DType::kF32 ? node : nullptr;
}

// The result of a product of bytes that is quantized by one scale: the product gives it. Null where
// that does not hold.
Value quantized_product(NodeContext& n, DType to) {
  const bool has_one = n.has_attribute("precision") || n.datum(1)->dtype != DType::kF32
                           ? false
                           : numel(n.shape(1)) == 1 && (!n.has(2) || numel(n.shape(2)) == 1);
  if (!has_one || size_of(to) != 1 || n.known(0) != nullptr) return {};
  const Value x = n.is_image(0) ? n.image(0) : n.value(0);
  const Node* const product = product_behind(x);
  if (product == nullptr) return {};
  MatMulI8 op = product->op_as<MatMulI8>();
  std::vector<Value> inputs(product->inputs.begin(), product->inputs.begin() + MatMulI8::kScale);
  const Value by = reshape(n.value(1), {});
  const auto quotient = [&](Value of) { return of / broadcast(by, of.shape()); };
  inputs.push_back(quotient(product->inputs[MatMulI8::kScale]));
  inputs.push_back(n.has(2) ? reshape(n.value(2), {}) : constant(n.graph(), {to, {}}, 0.0));
  if (product->inputs.size() > op.bias()) inputs.push_back(quotient(product->inputs[op.bias()]));
  op.to = to;
  return reshape(add_node(std::move(op), inputs), x.shape());
}

// One scale and zero point suit any order of axes.
bool computes_image(const NodeContext& n) {
  return n.is_image(0) && numel(n.shape(1)) == 1 && (!n.has(2) || numel(n.shape(2)) == 1);
}

void quantize_linear(NodeContext& n) {
  const DType from = dtype_attribute(n, "precision", n.dtype(1));
  const DType to = n.has(2) ? n.dtype(2) : dtype_attribute(n, "output_dtype", DType::kU8);
  check(is_quantized(to), "its result is {}", name_of(to));
  check(is_float(from), "its scale is {}", name_of(from));
  if (const DatumPtr* const same = given_again(n, to)) return n.give(0, *same);
  const bool is_image = computes_image(n);
  const auto give = [&](Value y) { is_image ? n.give_image(0, y) : n.give(y); };
  if (const Value y = quantized_product(n, to)) return give(y);
  const Value x = cast(is_image ? n.image(0) : n.value(0), from);
  const Value quotient = x / cast(spread(n, 1, x.shape()), from);
  const Value zero = n.has(2) ? cast(spread(n, 2, x.shape()), DType::kF32) : Value{};
  give(rounded(quotient, zero, to));
}

void dequantize_linear(NodeContext& n) {
  const DType dtype = n.dtype(0), scaled = n.dtype(1);
  check(is_quantized(dtype) || dtype == DType::kI32, "its input is {}", name_of(dtype));
  check(is_float(scaled), "its scale is {}", name_of(scaled));
  const bool is_image = computes_image(n);
  Value x = cast(is_image ? n.image(0) : n.value(0), DType::kI32);
  if (n.has(2)) x = x - cast(spread(n, 2, x.shape()), DType::kI32);
  const Value scale = cast(spread(n, 1, x.shape()), DType::kF32);
  const Value y = cast(cast(x, DType::kF32) * scale, dtype_attribute(n, "output_dtype", scaled));
  is_image ? n.give_image(0, y) : n.give(y);
  if (n.integer("block_size", 0) != 0) return;
  const int64_t axis = n.integer("axis", 1);
  n.results()[0]->dequantized = std::make_shared<const Dequantized>(Dequantized{
      n.datum(0), n.datum(1), n.has(2) ? n.datum(2) : nullptr, axis < 0 ? axis + n.rank(0) : axis});
}

// The scale and the zero point of u8 follow from the least and the largest element.
void dynamic_quantize_linear(NodeContext& n) {
  const Value x = n.value(0);
  check(x.dtype() == DType::kF32, "its input is {}", name_of(x.dtype()));
  const Value nothing = constant_like(reduce_max(x), 0.0);
  const Value most = maximum(reduce_max(x), nothing);
  const Value least = minimum(neg(reduce_max(neg(x))), nothing);
  const Value range = most - least;
  const Value scale = where(eq(range, nothing), constant_like(range, 1.0), range) / 255.0;
  const Value zero = cast(round_half_even(neg(least) / scale), DType::kU8);
  n.give(0,
         rounded(x / broadcast(scale, x.shape()),
                 broadcast(cast(zero, DType::kF32), x.shape()),
                 DType::kU8));
  if (n.wants(1)) n.give(1, scale);
  if (n.wants(2)) n.give(2, zero);
}

// ---- products ----

// An input that has one element, or one for each of `count` lanes; null where it is absent.
Value lanes_of(NodeContext& n, size_t input, int64_t count, std::string_view what) {
  if (!n.has(input)) return {};
  const Value x = n.value(input);
  if (x.type().elements() == 1) return reshape(x, {});
  check(x.shape() == Shape{count}, "its {} is neither one number nor one for each lane", what);
  return x;
}

Value one_of(NodeContext& n, size_t input, std::string_view what) {
  check(n.has(input) && n.value(input).type().elements() == 1, "its {} is not one number", what);
  return reshape(n.value(input), {});
}

void check_bytes(const NodeContext& n, size_t input) {
  const DType dtype = n.dtype(input);
  check(dtype == DType::kI8 || dtype == DType::kU8, "a factor is {}", name_of(dtype));
}

// The factors `a` and `b` of a product as NumPy has it: a vector is a row or a column.
struct Factors {
  Value a, b;
  bool is_row, is_column;
};

Factors factors_of(NodeContext& n, size_t a, size_t b) {
  check_bytes(n, a);
  check_bytes(n, b);
  check(n.rank(a) >= 1 && n.rank(b) >= 1, "a factor is a scalar");
  Factors f{n.value(a), n.value(b), n.rank(a) == 1, n.rank(b) == 1};
  if (f.is_row) f.a = reshape(f.a, {1, f.a.dim(0)});
  if (f.is_column) f.b = reshape(f.b, {f.b.dim(0), 1});
  return f;
}

void give_product(NodeContext& n, const Factors& f, Value y) {
  Shape shape = y.shape();
  if (f.is_column) shape.pop_back();
  if (f.is_row) shape.erase(shape.end() - (f.is_column ? 1 : 2));
  n.give(reshape(y, shape));
}

void matmul_integer(NodeContext& n) {
  const Factors f = factors_of(n, 0, 1);
  give_product(n,
               f,
               matmul_i8(f.a,
                         f.b,
                         lanes_of(n, 2, f.a.dim(-2), "a_zero_point"),
                         lanes_of(n, 3, f.b.dim(-1), "b_zero_point")));
}

// The inputs of QLinearMatMul and QLinearConv behind their factors.
ScaledTo scaled_to(NodeContext& n, int64_t columns) {
  const auto f32 = [](Value x) { return cast(x, DType::kF32); };
  const Value result = f32(one_of(n, 6, "y_scale"));
  Value scale = f32(lanes_of(n, 4, columns, "scale of the second factor"));
  const auto like = [&](Value x) { return broadcast(x, scale.shape()); };
  scale = like(f32(one_of(n, 1, "scale of the first factor"))) * scale / like(result);
  return {.dtype = n.dtype(7), .scale = scale, .zero = one_of(n, 7, "y_zero_point")};
}

void qlinear_matmul(NodeContext& n) {
  const Factors f = factors_of(n, 0, 3);
  check_bytes(n, 7);
  give_product(n,
               f,
               matmul_i8(f.a,
                         f.b,
                         one_of(n, 2, "a_zero_point"),
                         lanes_of(n, 5, f.b.dim(-1), "b_zero_point"),
                         scaled_to(n, f.b.dim(-1))));
}

// ---- convolutions ----

// Weights (O, I, W) or (O, I, H, W) as (H, W, I, O).
Value kernel_of(const NodeContext& n, size_t input) {
  if (n.rank(input) == 4) return n.transposed(input, {2, 3, 1, 0});
  check(n.rank(input) == 3, "its weights have {} dimensions", n.rank(input));
  const Value w = n.transposed(input, {2, 1, 0});
  return reshape(w, {1, w.dim(0), w.dim(1), w.dim(2)});
}

// The pixels of x (N, H, W, C) that each window sees, the zero point beyond them: (N, windows,
// kernel * C).
Value seen_by(Value x, Value zero, const WindowFields& window, const Shape& kernel) {
  const auto places = [&](int dimension, int64_t length) {
    const int64_t size = kernel[static_cast<size_t>(dimension)];
    return WindowDimension{
        window, dimension, length, size, window.positions(dimension, length, size, "conv")}
        .pixels_of_windows();
  };
  const int64_t pixels = x.dim(1) * x.dim(2);
  const bool sees_single_pixels = kernel[0] == 1 && kernel[1] == 1;
  if (sees_single_pixels && window.stride == WindowFields().stride &&
      window.padding == WindowFields().padding)
    return reshape(x, {x.dim(0), pixels, x.dim(3)});
  const Places rows = places(0, x.dim(1)), columns = places(1, x.dim(2));
  const Value beyond = broadcast(zero, {x.dim(0), 1, x.dim(3)});
  const Value all = concat({reshape(x, {x.dim(0), pixels, x.dim(3)}), beyond}, 1);
  const Value seen = gather(all, place_numbers(x.graph(), rows, columns, x.dim(2), pixels), 1);
  return reshape(seen, {x.dim(0), rows.count * columns.count, kernel[0] * kernel[1] * x.dim(3)});
}

// Sums in i32 of a convolution in groups, in f64, where kernels that transform their images are off
// by less than a half.
Value grouped_sums(
    Value x, Value w, Value x_zero, Value w_zero, const WindowFields& window, int64_t groups) {
  const auto minus = [](Value from, Value zero) {
    const Value wide = cast(from, DType::kF64);
    return wide - broadcast(cast(zero, DType::kF64), wide.shape());
  };
  const Value y = conv2d(minus(x, x_zero), minus(w, w_zero), window, groups);
  return cast(cast(round_half_even(y), DType::kI64), DType::kI32);
}

// An ungrouped convolution of x (N, H, W, C) and kernel (H, W, C, O), as an image.
Value image_of_bytes(Value x,
                     Value kernel,
                     Value x_zero,
                     Value w_zero,
                     const WindowFields& window,
                     const ScaledTo& to) {
  const Value seen = seen_by(x, x_zero, window, kernel.shape());
  const Value y = matmul_i8(seen, reshape(kernel, {-1, kernel.dim(3)}), x_zero, w_zero, to);
  return reshape(y,
                 {x.dim(0),
                  window.positions(0, x.dim(1), kernel.dim(0), "conv"),
                  window.positions(1, x.dim(2), kernel.dim(1), "conv"),
                  kernel.dim(3)});
}

// The convolution of inputs 0 and `w` with their zero points, as a product of what its windows see
// and the weights.
void convolve(NodeContext& n, size_t w, size_t x_zero_input, size_t w_zero_input) {
  check_bytes(n, 0);
  check_bytes(n, w);
  check(n.rank(w) >= 3, "its weights have {} dimensions", n.rank(w));
  const std::vector<int64_t> sizes(n.shape(w).begin() + 2, n.shape(w).end());
  check(n.list("kernel_shape", sizes) == sizes, "kernel_shape is not that of its weights");
  const WindowFields window = window_attributes(n, sizes).fields();
  const int64_t groups = n.integer("group", 1);
  const Value x = image_of(n, 0), kernel = kernel_of(n, w);
  const int64_t channels = kernel.dim(3);
  const auto zero = [&](size_t input, Value of) {
    const Value given = lanes_of(n, input, channels, "zero point");
    return given ? given : constant(n.graph(), {of.dtype(), {}}, 0.0);
  };
  const Value x_zero = zero(x_zero_input, x), w_zero = zero(w_zero_input, kernel);
  check(x_zero.rank() == 0, "the zero point of its image is not one number");
  const bool is_scaled = w == 3;
  ScaledTo to;
  if (is_scaled) to = scaled_to(n, channels);
  const bool has_bias = is_scaled && n.has(8);
  Value sums;
  Shape shape{x.dim(0),
              window.positions(0, x.dim(1), kernel.dim(0), "conv"),
              window.positions(1, x.dim(2), kernel.dim(1), "conv"),
              channels};
  if (groups == 1) {
    const Value y = image_of_bytes(x, kernel, x_zero, w_zero, window, has_bias ? ScaledTo{} : to);
    if (!has_bias) return give_image_of(n, y, n.rank(0));
    sums = y;
  } else {
    sums = grouped_sums(x, kernel, x_zero, w_zero, window, groups);
    if (!is_scaled) return give_image_of(n, sums, n.rank(0));
  }
  if (has_bias) sums = sums + broadcast(cast(n.value(8), DType::kI32), shape);
  const auto like = [&](Value v) { return broadcast(v, shape); };
  const Value scaled = cast(sums, DType::kF32) * like(to.scale);
  give_image_of(n, rounded(scaled, like(cast(to.zero, DType::kF32)), to.dtype), n.rank(0));
}

void conv_integer(NodeContext& n) { convolve(n, 1, 2, 3); }

void qlinear_conv(NodeContext& n) {
  check_bytes(n, 7);
  convolve(n, 3, 2, 5);
}

// A factor of bytes: null where the input is none, or has several scales but those of `axis`.
const Dequantized* bytes_behind(const NodeContext& n, size_t input, int64_t axis) {
  const Dequantized* const from = n.datum(input)->dequantized.get();
  if (from == nullptr || n.dtype(input) != DType::kF32 || n.rank(input) < 2) return nullptr;
  if (from->integers->dtype != DType::kI8 && from->integers->dtype != DType::kU8) return nullptr;
  if (from->scale->dtype != DType::kF32) return nullptr;
  return numel(from->scale->shape) == 1 || from->axis == axis ? from : nullptr;
}

bool may_multiply_bytes(const NodeContext& n) {
  return n.import().folds_norms() && &n.graph() == &n.import().graph();
}

// A scale or a zero point in the graph, a scalar where it is one number; null where it is absent.
Value lanes_of(NodeContext& n, const DatumPtr& datum) {
  if (datum == nullptr) return {};
  const Value x = n.import().value(*datum);
  return x.type().elements() == 1 ? reshape(x, {}) : x;
}

// The product is f32: its integers are multiplied by the scales of both factors.
ScaledTo scaled_back(NodeContext& n, const Dequantized& a, const Dequantized& b, Value bias) {
  const Value scale = lanes_of(n, b.scale);
  return {.dtype = DType::kF32,
          .scale = broadcast(lanes_of(n, a.scale), scale.shape()) * scale,
          .zero = {},
          .bias = bias};
}

constexpr OpRow kQuantizeOps[] = {
    {"QuantizeLinear", quantize_linear},
    {"DequantizeLinear", dequantize_linear},
    {"DynamicQuantizeLinear", dynamic_quantize_linear},
    {"MatMulInteger", matmul_integer},
    {"QLinearMatMul", qlinear_matmul},
    {"ConvInteger", conv_integer},
    {"QLinearConv", qlinear_conv},
};

}  // namespace

Value product_of_bytes(NodeContext& n, bool transpose_b, Value bias) {
  if (!may_multiply_bytes(n)) return {};
  constexpr int64_t kNone = -1;
  const Dequantized* const a = bytes_behind(n, 0, kNone);
  const int64_t columns = transpose_b ? 0 : 1;
  const Dequantized* const b = bytes_behind(n, 1, n.rank(1) == 2 ? columns : kNone);
  if (a == nullptr || b == nullptr) return {};
  return matmul_i8(n.import().value(*a->integers),
                   n.import().value(*b->integers),
                   lanes_of(n, a->zero),
                   lanes_of(n, b->zero),
                   scaled_back(n, *a, *b, bias),
                   transpose_b);
}

Value convolution_of_bytes(NodeContext& n, const WindowFields& window, int64_t groups) {
  if (!may_multiply_bytes(n) || groups != 1 || n.rank(0) != 4 || n.rank(1) != 4) return {};
  constexpr int64_t kNone = -1, kChannels = 0;
  const Dequantized* const a = bytes_behind(n, 0, kNone);
  const Dequantized* const b = bytes_behind(n, 1, kChannels);
  if (a == nullptr || b == nullptr || !b->integers->known) return {};
  const Value x = n.import().image(*a->integers);
  const Value kernel = n.import().moved(*b->integers, {2, 3, 1, 0});
  const auto zero = [&](const DatumPtr& datum, Value of) {
    const Value given = lanes_of(n, datum);
    return given ? given : constant(n.graph(), {of.dtype(), {}}, 0.0);
  };
  return image_of_bytes(x,
                        kernel,
                        zero(a->zero, x),
                        zero(b->zero, kernel),
                        window,
                        scaled_back(n, *a, *b, n.has(2) ? n.value(2) : Value{}));
}

std::span<const OpRow> quantize_ops() { return kQuantizeOps; }

}  // namespace ridge::onnx
