// Operators of quantized models: numbers as integers with a scale and a zero point, and products of
// such integers.
#include "ridge/import/onnx/ops/quantize.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/builders/quantized.h"
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

// The fields of a product of bytes; null for another node.
const ProductI8* product_of(const Node& node) {
  if (node.is<MatMulI8>()) return &node.op_as<MatMulI8>();
  return node.is<Conv2dI8>() ? &node.op_as<Conv2dI8>() : nullptr;
}

// The product of bytes in f32 that x is, maybe under another shape; else null.
const Node* product_behind(Value x) {
  const Node* node = x.node;
  while (node->is<Reshape>()) node = node->inputs[0].node;
  const ProductI8* const product = product_of(*node);
  return product != nullptr && product->to == DType::kF32 ? node : nullptr;
}

// How a QuantizeLinear of one known scale and zero point quantizes numbers to bytes.
struct Quantization {
  float scale;
  double zero, least;

  // Nothing where that is not known, or the scale turns the order of numbers round.
  static std::optional<Quantization> of(const NodeContext& n, DType to) {
    const Known* const scale = n.known(1);
    if (scale == nullptr || !(scale->at(0) > 0) || !std::isfinite(scale->at(0))) return {};
    if (n.has(2) && n.known(2) == nullptr) return {};
    return Quantization{static_cast<float>(scale->at(0)),
                        n.has(2) ? n.known(2)->at(0) : 0.0,
                        to == DType::kI8 ? -128.0 : 0.0};
  }
  int64_t integer_of(double x) const {
    const double whole = static_cast<double>(std::nearbyint(static_cast<float>(x) / scale));
    return static_cast<int64_t>(std::clamp(whole + zero, least, least + 255));
  }
};

// The integers between which limits of numbers leave their integers: rounding keeps their order, so
// that it may come first. Nothing where a limit is NaN.
std::optional<std::vector<int64_t>> limits_of(const std::vector<const Limited*>& outermost_first,
                                              const Quantization& quantization) {
  const auto least = static_cast<int64_t>(quantization.least);
  int64_t low = least, high = least + 255;
  for (size_t i = outermost_first.size(); i-- > 0;) {
    const Limited& limited = *outermost_first[i];
    if (std::isnan(limited.low.value_or(0)) || std::isnan(limited.high.value_or(0))) return {};
    if (limited.low) {
      low = std::max(low, quantization.integer_of(*limited.low));
      high = std::max(high, low);
    }
    if (limited.high) {
      high = std::min(high, quantization.integer_of(*limited.high));
      low = std::min(low, high);
    }
  }
  return low == least && high == least + 255 ? std::vector<int64_t>{} : std::vector{low, high};
}

// Gives the result of a product of bytes, maybe behind a Relu or a Clip, that is quantized by one
// scale: the product makes it. False where that does not hold.
bool gives_quantized_product(NodeContext& n, DType to) {
  const bool has_one = n.has_attribute("precision") || n.datum(1)->dtype != DType::kF32
                           ? false
                           : numel(n.shape(1)) == 1 && (!n.has(2) || numel(n.shape(2)) == 1);
  if (!has_one || size_of(to) != 1 || n.known(0) != nullptr) return false;
  std::vector<const Limited*> limited;
  Datum* datum = n.datum(0).get();
  for (; datum->limited != nullptr; datum = limited.back()->of.get())
    limited.push_back(datum->limited.get());
  const bool is_image = !datum->known && datum->image;
  if (!is_image && !datum->value) return false;
  const Value x = is_image ? datum->image : datum->value;
  const Node* const node = product_behind(x);
  if (node == nullptr) return false;
  std::vector<int64_t> limits;
  if (!limited.empty()) {
    const auto quantization = Quantization::of(n, to);
    const auto found = quantization ? limits_of(limited, *quantization) : std::nullopt;
    if (!found) return false;
    limits = *found;
  }
  const size_t bias = product_of(*node)->bias();
  std::vector<Value> inputs(node->inputs.begin(), node->inputs.begin() + ProductI8::kScale);
  const Value by = reshape(n.value(1), {});
  const auto quotient = [&](Value of) { return of / broadcast(by, of.shape()); };
  inputs.push_back(quotient(node->inputs[ProductI8::kScale]));
  inputs.push_back(n.has(2) ? reshape(n.value(2), {}) : constant(n.graph(), {to, {}}, 0.0));
  if (node->inputs.size() > bias) inputs.push_back(quotient(node->inputs[bias]));
  const auto remade = [&](auto op) {
    op.to = to;
    op.limits = limits;
    return reshape(add_node(std::move(op), inputs), x.shape());
  };
  const Value y =
      node->is<MatMulI8>() ? remade(node->op_as<MatMulI8>()) : remade(node->op_as<Conv2dI8>());
  is_image ? n.give_image(0, y) : n.give(y);
  return true;
}

// One scale and zero point suit any order of axes.
bool computes_image(const NodeContext& n) {
  return n.is_image(0) && numel(n.shape(1)) == 1 && (!n.has(2) || numel(n.shape(2)) == 1);
}

void quantize_linear(NodeContext& n) {
  const DType from = dtype_attribute(n, "precision", n.dtype(1));
  const DType to = n.has(2) ? n.dtype(2) : dtype_attribute(n, "output_dtype", DType::kU8);
  check(is_quantized(to), "its result is {}", name_of(to));
  check(!n.has(2) || n.known(2) == nullptr || !n.known(2)->is_narrow(),
        "its result has fewer than 8 bits");
  check(is_float(from), "its scale is {}", name_of(from));
  if (const DatumPtr* const same = given_again(n, to)) return n.give(0, *same);
  if (gives_quantized_product(n, to)) return;
  const bool is_image = computes_image(n);
  const Value x = cast(is_image ? n.image(0) : n.value(0), from);
  const Value quotient = x / cast(spread(n, 1, x.shape()), from);
  const Value zero = n.has(2) ? cast(spread(n, 2, x.shape()), DType::kF32) : Value{};
  const Value y = rounded_to_integers(quotient, zero, to);
  is_image ? n.give_image(0, y) : n.give(y);
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
         rounded_to_integers(x / broadcast(scale, x.shape()),
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

// The convolution of inputs 0 and `w` with their zero points.
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
  const Value x_zero = lanes_of(n, x_zero_input, channels, "zero point");
  check(!x_zero || x_zero.rank() == 0, "the zero point of its image is not one number");
  const Value w_zero = lanes_of(n, w_zero_input, channels, "zero point");
  const bool is_scaled = w == 3;
  ScaledTo to;
  if (is_scaled) to = scaled_to(n, channels);
  if (is_scaled && n.has(8)) to.bias = cast(n.value(8), DType::kI32);
  give_image_of(n, conv2d_i8(x, kernel, x_zero, w_zero, window, groups, to), n.rank(0));
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
  if (!may_multiply_bytes(n) || n.rank(0) != 4 || n.rank(1) != 4) return {};
  constexpr int64_t kNone = -1, kChannels = 0;
  const Dequantized* const a = bytes_behind(n, 0, kNone);
  const Dequantized* const b = bytes_behind(n, 1, kChannels);
  if (a == nullptr || b == nullptr || !b->integers->known) return {};
  const Value x = n.import().image(*a->integers);
  const Value kernel = n.import().moved(*b->integers, {2, 3, 1, 0});
  return conv2d_i8(x,
                   kernel,
                   lanes_of(n, a->zero),
                   lanes_of(n, b->zero),
                   window,
                   groups,
                   scaled_back(n, *a, *b, n.has(2) ? n.value(2) : Value{}));
}

Value mean_of_bytes(NodeContext& n, const std::vector<int64_t>& axes, bool is_image) {
  if (!may_multiply_bytes(n) || axes.empty()) return {};
  const Dequantized* const from = n.datum(0)->dequantized.get();
  if (from == nullptr || n.dtype(0) != DType::kF32 || from->scale->dtype != DType::kF32) return {};
  const DType dtype = from->integers->dtype;
  const bool has_one = numel(from->scale->shape) == 1;
  if (!has_one || (dtype != DType::kI8 && dtype != DType::kU8) || from->integers->known) return {};
  ImportContext& import = n.import();
  const Value x = is_image ? import.image(*from->integers) : import.value(*from->integers);
  int64_t count = 1;
  for (const int64_t axis : axes) count *= x.dim(axis);
  constexpr int64_t kMost = int64_t{1} << 22;  // whose sum, less the zero points, is within i32
  if (count > kMost) return {};
  Value sum = reduce_sum_i8(x, axes, true);
  const auto like = [&](Value of) { return broadcast(of, sum.shape()); };
  if (const Value zero = lanes_of(n, from->zero))
    sum = sum - like(cast(zero, DType::kI32) * static_cast<double>(count));
  return cast(sum, DType::kF32) * like(lanes_of(n, from->scale) / static_cast<double>(count));
}

std::span<const OpRow> quantize_ops() { return kQuantizeOps; }

}  // namespace ridge::onnx
