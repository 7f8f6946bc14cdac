#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/conv_norm.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/fused_conv.h"
#include "ridge/graph/ops/fused_matmul.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/pointwise_depthwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "tests/support/op_audit.h"

namespace ridge::test {
namespace {

OpSample product(std::string label, Shape a, Shape b_shape, bool ta, bool tb) {
  return {"matmul", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            return {matmul(b.input(a), b.input(b_shape), ta, tb)};
          }};
}

// Steps hide from finite differences.
OpSample rounded_product(DType to, Shape a, Shape b_shape, bool transpose_b) {
  return {"matmul",
          fmt::format("rounded to {}{}", name_of(to), transpose_b ? ", transposed b" : ""),
          [=](CaseBuilder& b) -> std::vector<Value> {
            const Value left = b.input(a);
            MatMul op;
            op.transpose_b = transpose_b;
            op.accumulate = accumulate_dtype(left.dtype());
            if (left.dtype() == DType::kF32) op.round_to = to;
            return {add_node(std::move(op), {left, b.input(b_shape)})};
          },
          /*check_gradient=*/false};
}

// Within its own tolerance, on a device that has it.
OpSample product_in_tf32(Shape a, Shape b_shape) {
  return {"matmul", "in TF32", [=](CaseBuilder& b) -> std::vector<Value> {
            const Value left = b.input(a);
            MatMul op;
            op.accumulate = accumulate_dtype(left.dtype());
            op.tf32 = left.dtype() == DType::kF32;
            return {add_node(std::move(op), {left, b.input(b_shape)})};
          }};
}

// The sum of 16-bit factors, as it is.
OpSample product_of_f32(Shape a, Shape b_shape, bool transpose_a, bool transpose_b) {
  return {"matmul",
          fmt::format("result in f32{}", transpose_a ? ", transposed a" : ""),
          [=](CaseBuilder& b) -> std::vector<Value> {
            const Value left = b.input(a);
            MatMul op;
            op.transpose_a = transpose_a;
            op.transpose_b = transpose_b;
            op.accumulate = accumulate_dtype(left.dtype());
            op.f32_result = size_of(left.dtype()) == 2;
            return {add_node(std::move(op), {left, b.input(b_shape)})};
          }};
}

// Numbers of bytes of that dtype, all of them.
Value bytes(CaseBuilder& b, DType dtype, const Shape& shape) {
  return dtype == DType::kI8 ? b.indices(dtype, shape, -128, 127) : b.indices(dtype, shape, 0, 255);
}

// The inputs of a product behind its zero points; lanes: a scale and a bias for each column, else
// there is one scale and no bias.
void add_scales(CaseBuilder& b,
                const ProductI8& op,
                int64_t columns,
                bool lanes,
                DType bias,
                std::vector<Value>& inputs) {
  if (!op.is_scaled()) return;
  inputs.push_back(b.input(DType::kF32, lanes ? Shape{columns} : Shape{}, 1e-4, 1e-3));
  if (op.is_rounded()) inputs.push_back(bytes(b, op.to, {}));
  if (!lanes) return;
  inputs.push_back(bias == DType::kI32 ? b.indices(bias, {columns}, -60'000, 60'000)
                                       : b.input(bias, {columns}, -50, 50));
}

// Factors of the tested dtype and of `other`; lanes: a zero point for each row and column, and a
// scale and a bias for each column.
OpSample product_of_bytes(DType other,
                          DType to,
                          Shape a,
                          Shape b_shape,
                          bool transpose_a,
                          bool transpose_b,
                          bool lanes,
                          std::vector<int64_t> limits = {}) {
  return {"matmul_i8",
          fmt::format("by {} to {} of {}{}{}{}{}",
                      name_of(other),
                      name_of(to),
                      to_string(a),
                      transpose_a ? ", transposed a" : "",
                      transpose_b ? ", transposed b" : "",
                      lanes ? ", lanes" : "",
                      limits.empty() ? "" : ", limits"),
          [=](CaseBuilder& b) -> std::vector<Value> {
            const int64_t rows = a.end()[transpose_a ? -1 : -2];
            const int64_t columns = b_shape.end()[transpose_b ? -2 : -1];
            MatMulI8 op;
            op.transpose_a = transpose_a;
            op.transpose_b = transpose_b;
            op.to = to;
            op.limits = limits;
            std::vector<Value> inputs{bytes(b, b.dtype(), a),
                                      bytes(b, other, b_shape),
                                      bytes(b, b.dtype(), lanes ? Shape{rows} : Shape{}),
                                      bytes(b, other, lanes ? Shape{columns} : Shape{})};
            add_scales(b, op, columns, lanes, DType::kF32, inputs);
            return {add_node(std::move(op), inputs)};
          }};
}

const OpSamples kMatMulI8({
    product_of_bytes(DType::kI8, DType::kI32, {5, 7}, {7, 3}, false, false, false),
    product_of_bytes(DType::kU8, DType::kI32, {2, 5, 70}, {2, 70, 33}, false, false, true),
    product_of_bytes(DType::kI8, DType::kF32, {40, 20}, {40, 17}, true, false, true),
    product_of_bytes(DType::kU8, DType::kF32, {1, 130}, {35, 130}, false, true, false),
    product_of_bytes(DType::kI8, DType::kI8, {3, 9, 65}, {65, 40}, false, false, true),
    product_of_bytes(DType::kU8, DType::kI8, {66, 9}, {40, 66}, true, true, false),
    product_of_bytes(DType::kI8, DType::kU8, {130, 31}, {31, 70}, false, false, true),
    product_of_bytes(DType::kU8, DType::kU8, {4, 50}, {70, 50}, false, true, true),
    product_of_bytes(DType::kI8, DType::kI8, {9, 65}, {65, 40}, false, false, true, {-100, 20}),
    product_of_bytes(DType::kI8, DType::kU8, {3, 31}, {31, 70}, false, false, false, {128, 255}),
});

const OpSamples kMatMul({
    product("plain", {5, 7}, {7, 3}, false, false),
    product("transposed a", {7, 5}, {7, 3}, true, false),
    product("transposed b", {5, 7}, {3, 7}, false, true),
    product("both transposed", {7, 5}, {3, 7}, true, true),
    product("batched", {2, 3, 5, 7}, {2, 3, 7, 4}, false, false),
    product("folded batch", {2, 3, 7}, {7, 4}, false, false),
    product("broadcast batch", {3, 5, 7}, {1, 4, 7}, false, true),
    product("beyond one tile", {67, 45}, {45, 70}, false, false),
    product("one row", {1, 33}, {33, 17}, false, false),
    rounded_product(DType::kBF16, {67, 45}, {45, 70}, false),
    rounded_product(DType::kBF16, {3, 20, 131}, {3, 40, 131}, true),
    rounded_product(DType::kF16, {67, 45}, {45, 70}, false),
    rounded_product(DType::kF16, {3, 20, 131}, {3, 40, 131}, true),
    product_in_tf32({67, 45}, {45, 70}),
    product_of_f32({67, 45}, {45, 70}, false, false),
    product_of_f32({3, 131, 20}, {3, 40, 131}, true, true),
    product_of_f32({900, 20}, {900, 12}, true, false),
});

DType wide(DType dtype) { return size_of(dtype) == 2 ? DType::kF32 : dtype; }

// Results of the node that `write` makes a body for; it is given the product and the other inputs,
// all of them wide.
std::vector<Value> product_in_loop(
    CaseBuilder& b,
    MatMul product,
    const std::pair<Shape, Shape>& factors,
    const std::vector<Value>& others,
    const std::function<std::vector<Value>(Value, const std::vector<Value>&)>& write,
    const LoopDomain& domain = {}) {
  const Value left = b.input(factors.first), right = b.input(factors.second);
  product.accumulate = accumulate_dtype(left.dtype());
  product.f32_result = product.f32_result && size_of(left.dtype()) == 2;
  Graph body("fused"), alone("alone");
  const TensorType made = product.infer(std::vector<TensorType>{left.type(), right.type()})[0];
  std::vector<Value> inputs{input(alone, "0", made)}, read;
  const Value x = cast(input(body, "0", made), wide(made.dtype));
  for (const Value& other : others) {
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(alone, name, other.type()));
    read.push_back(cast(input(body, name, other.type()), wide(other.dtype())));
  }
  for (const Value& result : write(x, read))
    body.add_output(fmt::format("{}", body.outputs().size()), result);
  const auto& loop = fused(alone, body, inputs, Site{"loop"}, domain).op_as<Fused>();
  Node& node =
      fused_matmul(b.graph(), product, loop, left, right, others, b.graph().next_site("product"));
  std::vector<Value> results;
  for (size_t i = 0; i < node.outputs.size(); ++i) results.push_back({&node, static_cast<int>(i)});
  return results;
}

// A layer with a bias and GELU, which also keeps GELU's input for the gradient.
std::vector<Value> layer_of_product(CaseBuilder& b) {
  const Value bias = b.input(wide(b.dtype()), {70}, -2.0, 2.0);
  return product_in_loop(
      b, {}, {{67, 45}, {45, 70}}, {bias}, [&](Value x, const std::vector<Value>& others) {
        const Value sum = x + broadcast(others[0], {67, 70});
        const Value activated = reshape(gelu(sum, GeluForm::kTanh), {1, 67, 70});
        return std::vector<Value>{cast(activated, b.dtype()), cast(sum, b.dtype())};
      });
}

// A loop that reads a value of the product's size, and makes one of another dtype.
std::vector<Value> product_and_slope(CaseBuilder& b) {
  MatMul product;
  product.transpose_b = true;
  const Value y = b.input({2, 5, 4});
  return product_in_loop(
      b, product, {{2, 5, 7}, {2, 4, 7}}, {y}, [](Value x, const std::vector<Value>& others) {
        return std::vector<Value>{x * (constant_like(others[0], 1) - others[0] * others[0])};
      });
}

// Sums over the rows of the product, which stays f32 where its factors are of 16 bits.
std::vector<Value> product_and_sums(CaseBuilder& b) {
  MatMul product;
  product.transpose_a = true;
  product.f32_result = true;
  return product_in_loop(
      b,
      product,
      {{20, 6}, {20, 9}},
      {},
      [](Value x, const std::vector<Value>&) {
        const Value square = x * x;
        return std::vector<Value>{square, reduce_sum(square, {0})};
      },
      LoopDomain{54, 9});
}

const OpSamples kFusedMatMul({
    {"fused_matmul", "bias and GELU", layer_of_product},
    {"fused_matmul", "another operand", product_and_slope},
    {"fused_matmul", "sums", product_and_sums},
});

struct ConvolutionCase {
  std::string label;
  Shape x, w;
  WindowFields window;
  int64_t groups = 1;
  bool tf32 = false;
};

template <typename T>
T of_case(const ConvolutionCase& c, const CaseBuilder& b) {
  T op;
  op.window = c.window;
  op.groups = c.groups;
  op.tf32 = c.tf32 && b.dtype() == DType::kF32;
  return op;
}

std::vector<ConvolutionCase> convolution_cases() {
  return {
      {"3x3", {2, 6, 5, 3}, {3, 3, 3, 4}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}},
      {"1x1", {2, 4, 5, 3}, {1, 1, 3, 6}, {}},
      {"1x1 in TF32", {2, 4, 5, 3}, {1, 1, 3, 6}, {}, 1, true},
      {"stride and uneven padding", {1, 7, 8, 2}, {3, 2, 2, 3}, {{2, 3}, {0, 1, 2, 0}, {1, 1}}},
      {"dilation", {1, 9, 8, 2}, {3, 2, 2, 3}, {{1, 1}, {1, 0, 1, 1}, {2, 3}}},
      {"groups", {2, 5, 5, 6}, {3, 3, 2, 9}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}, 3},
      {"depthwise", {2, 5, 6, 5}, {3, 3, 1, 5}, {{2, 1}, {1, 1, 1, 1}, {1, 1}}, 5},
      {"depthwise with multiplier", {1, 5, 6, 3}, {3, 3, 1, 6}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}, 3}};
}

Shape output_shape(const ConvolutionCase& c) {
  return {c.x[0],
          c.window.positions(0, c.x[1], c.w[0], "test"),
          c.window.positions(1, c.x[2], c.w[1], "test"),
          c.w[3]};
}

std::vector<OpSample> convolutions() {
  std::vector<OpSample> samples;
  for (const ConvolutionCase& c : convolution_cases()) {
    samples.push_back({"conv2d", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         auto op = of_case<Conv2d>(c, b);
                         return {add_node(std::move(op), {b.input(c.x), b.input(c.w)})};
                       }});
    samples.push_back({"conv2d_grad_input", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         auto op = of_case<Conv2dGradInput>(c, b);
                         op.size = {c.x[1], c.x[2]};
                         return {add_node(std::move(op), {b.input(output_shape(c)), b.input(c.w)})};
                       }});
    samples.push_back({"conv2d_grad_weight", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
                         auto op = of_case<Conv2dGradWeight>(c, b);
                         op.size = {c.w[0], c.w[1]};
                         return {add_node(std::move(op), {b.input(c.x), b.input(output_shape(c))})};
                       }});
  }
  return samples;
}

const OpSamples kConvolutions(convolutions());

// Images of the tested dtype by weights of `other`; lanes: a zero point, a scale and a bias for
// each channel.
OpSample convolution_of_bytes(const ConvolutionCase& c,
                              DType other,
                              DType to,
                              bool lanes,
                              DType bias = DType::kF32,
                              std::vector<int64_t> limits = {}) {
  return {"conv2d_i8",
          fmt::format("{} by {} to {}{}{}{}",
                      c.label,
                      name_of(other),
                      name_of(to),
                      lanes ? ", lanes" : "",
                      bias == DType::kI32 ? ", bias of the sum" : "",
                      limits.empty() ? "" : ", limits"),
          [=](CaseBuilder& b) -> std::vector<Value> {
            Conv2dI8 op;
            op.window = c.window;
            op.groups = c.groups;
            op.to = to;
            op.limits = limits;
            const int64_t columns = c.w[3];
            std::vector<Value> inputs{bytes(b, b.dtype(), c.x),
                                      bytes(b, other, c.w),
                                      bytes(b, b.dtype(), {}),
                                      bytes(b, other, lanes ? Shape{columns} : Shape{})};
            add_scales(b, op, columns, lanes, bias, inputs);
            return {add_node(std::move(op), inputs)};
          }};
}

std::vector<OpSample> convolutions_of_bytes() {
  constexpr DType kResults[] = {DType::kI32, DType::kF32, DType::kI8, DType::kU8};
  std::vector<OpSample> samples;
  size_t number = 0;
  for (const ConvolutionCase& c : convolution_cases()) {
    if (c.tf32) continue;
    const DType to = kResults[number % 4], other = number % 3 != 0 ? DType::kI8 : DType::kU8;
    samples.push_back(convolution_of_bytes(c, other, to, number % 2 != 0));
    samples.push_back(convolution_of_bytes(
        c, other, number % 2 != 0 ? DType::kI8 : DType::kU8, true, DType::kI32, {3, 90}));
    ++number;
  }
  return samples;
}

const OpSamples kConvolutionsOfBytes(convolutions_of_bytes());

// (y + bias) * other, of a convolution's y.
OpSample convolution_in_loop(const ConvolutionCase& c) {
  return {
      "fused_conv2d", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
        const Shape shape = output_shape(c);
        const Value x = b.input(c.x), w = b.input(c.w);
        const Value bias = b.input({shape[3]}), other = b.input(shape);
        Graph body("fused"), alone("alone");
        std::vector<Value> inputs, read;
        for (const TensorType& type : {TensorType{b.dtype(), shape}, bias.type(), other.type()}) {
          const std::string name = fmt::format("{}", inputs.size());
          inputs.push_back(input(alone, name, type));
          read.push_back(input(body, name, type));
        }
        body.add_output("0", (read[0] + broadcast(read[1], shape)) * read[2]);
        const auto& loop = fused(alone, body, inputs, Site{"loop"}).op_as<Fused>();
        Node& node = fused_conv2d(b.graph(),
                                  of_case<Conv2d>(c, b),
                                  loop,
                                  x,
                                  w,
                                  {bias, other},
                                  b.graph().next_site("convolution"));
        return {{&node, 0}};
      }};
}

std::vector<OpSample> convolutions_in_loops() {
  std::vector<OpSample> samples;
  for (const ConvolutionCase& c : convolution_cases())
    if (!c.tf32) samples.push_back(convolution_in_loop(c));
  return samples;
}

const OpSamples kConvolutionsInLoops(convolutions_in_loops());

// scale * y + other of a convolution's y of that shape; `scale` is of its channels.
Fused loop_of_scale(DType dtype, const Shape& shape) {
  Graph body("fused"), alone("alone");
  std::vector<Value> inputs, read;
  for (const Shape& each : {shape, Shape{shape.back()}, shape}) {
    const std::string name = fmt::format("{}", inputs.size());
    inputs.push_back(input(alone, name, {dtype, each}));
    read.push_back(input(body, name, {dtype, each}));
  }
  body.add_output("0", read[0] * broadcast(read[1], shape) + read[2]);
  return fused(alone, body, inputs, Site{"loop"}).op_as<Fused>();
}

OpSample pointwise_then_depthwise(std::string label,
                                  const Shape& x,
                                  const Shape& v,
                                  const WindowFields& window) {
  return {"pointwise_depthwise", std::move(label), [=](CaseBuilder& b) -> std::vector<Value> {
            const Shape between{x[0], x[1], x[2], v[3]};
            const ConvolutionCase depthwise{"", between, v, window};
            PointwiseDepthwise op;
            op.window = window;
            op.first = loop_of_scale(b.dtype(), between);
            op.second = loop_of_scale(b.dtype(), output_shape(depthwise));
            op.first_operands = 2;
            std::vector<Value> inputs{b.input(x), b.input({1, 1, x[3], v[3]}), b.input(v)};
            for (const Shape& shape : {between, output_shape(depthwise)}) {
              inputs.push_back(b.input({v[3]}));
              inputs.push_back(b.input(shape));
            }
            return {add_node(std::move(op), inputs)};
          }};
}

const OpSamples kPointwiseDepthwise({
    pointwise_then_depthwise("3x3", {2, 4, 5, 3}, {3, 3, 1, 4}, {{1, 1}, {1, 1, 1, 1}, {1, 1}}),
    pointwise_then_depthwise(
        "stride and uneven padding", {1, 7, 6, 2}, {5, 3, 1, 3}, {{2, 2}, {1, 0, 2, 1}, {1, 1}}),
});

// Results of the norms lie well away from the kinks: their inputs are separated, scales small
// against shifts.
// mean, scale and shift of `channels`.
std::vector<Value> norm_inputs(CaseBuilder& b, int64_t channels) {
  return {b.input({channels}), b.input({channels}, 0.1, 0.2), b.input({channels}, 2.0, 4.0)};
}

OpSample norm_then_convolution(const ConvolutionCase& c, std::string activation) {
  return {"norm_conv2d", c.label, [=](CaseBuilder& b) -> std::vector<Value> {
            NormConv2d op;
            op.window = c.window;
            op.groups = c.groups;
            op.activation = activation;
            std::vector<Value> inputs{b.separated(c.x)};
            for (const Value& value : norm_inputs(b, c.x[3])) inputs.push_back(value);
            inputs.push_back(b.input(c.w));
            return {add_node(std::move(op), inputs)};
          }};
}

OpSample convolution_with_norm(const ConvolutionCase& c, std::string activation, bool before) {
  const std::string label = c.label + (before ? ", normalised" : "");
  return {"conv2d_norm_grad", label, [=](CaseBuilder& b) -> std::vector<Value> {
            const Shape z = output_shape(c), channel{z[3]};
            Conv2dNormGrad op;
            op.window = c.window;
            op.groups = c.groups;
            op.activation = activation;
            if (before) op.input_activation = "relu";
            std::vector<Value> inputs{b.separated(c.x),
                                      b.input(c.w),
                                      b.separated(z),
                                      b.input(channel, 0.1, 0.2),
                                      b.input(channel, 2.0, 4.0),
                                      b.input(channel),
                                      b.input(channel, 0.5, 2.0),
                                      b.input(z)};
            if (before)
              for (const Value& value : norm_inputs(b, c.x[3])) inputs.push_back(value);
            const Value dx = add_node(std::move(op), inputs);
            return {dx, {dx.node, 1}, {dx.node, 2}, {dx.node, 3}};
          }};
}

std::vector<OpSample> convolutions_with_norms() {
  std::vector<OpSample> samples;
  for (const ConvolutionCase& c : convolution_cases()) {
    const std::string activation = samples.size() % 2 == 0 ? "relu6" : "none";
    samples.push_back(norm_then_convolution(c, activation));
    samples.push_back(convolution_with_norm(c, activation, false));
    samples.push_back(convolution_with_norm(c, activation, true));
  }
  return samples;
}

const OpSamples kConvolutionsWithNorms(convolutions_with_norms());

// One sample of attention; `packed` heads of qkv, or 0 for q, k, v with 3 heads.
struct AttentionCase {
  std::string label;
  int64_t t, s;
  bool causal = false;
  Shape mask = {};
  int64_t packed = 0;
  bool is_bias = false;  // The mask is one.
  bool by_token = false;
};

const AttentionCase kAttentionCases[] = {
    {"full", 5, 7},
    {"causal", 9, 9, true},
    {"causal, fewer keys", 6, 4, true},
    {"mask", 5, 7, false, {2, 1, 5, 7}},
    {"key mask and causal", 7, 7, true, {2, 1, 1, 7}},
    {"beyond one tile", 70, 133},
    {"packed", 9, 9, true, {}, 3},
    {"packed and masked", 5, 5, false, {2, 3, 5, 5}, 3},
    {"bias", 5, 7, false, {1, 3, 5, 7}, 0, true},
    {"key bias and causal", 7, 7, true, {2, 1, 1, 7}, 0, true},
    {"packed with a bias", 40, 40, false, {2, 1, 40, 40}, 3, true},
    {"by token", 6, 9, false, {2, 3, 6, 9}, 0, false, true},
    {"by token, causal", 40, 40, true, {}, 0, false, true},
};

// q, k and v, or qkv.
std::vector<Value> attention_operands(const AttentionCase& c, CaseBuilder& b) {
  if (c.packed != 0) return {b.input({2, c.t, 3 * c.packed * 4})};
  if (c.by_token)
    return {b.input({2, c.t, 3, 4}), b.input({2, c.s, 3, 4}), b.input({2, c.s, 3, 5})};
  return {b.input({2, 3, c.t, 4}), b.input({2, 3, c.s, 4}), b.input({2, 3, c.s, 5})};
}

OpSample attention_sample(const AttentionCase& c) {
  return {"attention", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
            Attention op;
            op.causal = c.causal;
            op.scale = 0.5;
            op.heads = c.packed;
            op.by_token = c.by_token;
            std::vector<Value> inputs = attention_operands(c, b);
            if (c.is_bias)
              inputs.push_back(b.input(c.mask));
            else if (!c.mask.empty())
              inputs.push_back(b.input(DType::kBool, c.mask, 0, 1));
            const Value y = add_node(std::move(op), std::move(inputs));
            return {y, {y.node, 1}};
          }};
}

// y, logsumexp and dy are any numbers: what the op computes from them needs no attention before it.
OpSample attention_grad_sample(const AttentionCase& c) {
  return {"attention_grad", c.label, [c](CaseBuilder& b) -> std::vector<Value> {
            AttentionGrad op;
            op.causal = c.causal;
            op.scale = 0.5;
            op.heads = c.packed;
            op.by_token = c.by_token;
            std::vector<Value> inputs = attention_operands(c, b);
            const Shape y = c.packed != 0 ? Shape{2, c.t, c.packed * 4}
                            : c.by_token  ? Shape{2, c.t, 3, 5}
                                          : Shape{2, 3, c.t, 5};
            inputs.push_back(b.input(y));
            inputs.push_back(b.input(logsumexp_dtype(b.dtype()), {2, 3, c.t}, 1.0, 3.0));
            inputs.push_back(b.input(y));
            if (!c.mask.empty()) inputs.push_back(b.input(DType::kBool, c.mask, 0, 1));
            Node* node = add_node(std::move(op), std::move(inputs)).node;
            std::vector<Value> gradients{{node, 0}};
            if (c.packed == 0) gradients.insert(gradients.end(), {{node, 1}, {node, 2}});
            return gradients;
          }};
}

std::vector<OpSample> attentions() {
  std::vector<OpSample> samples;
  for (const AttentionCase& c : kAttentionCases) {
    samples.push_back(attention_sample(c));
    if (!c.is_bias) samples.push_back(attention_grad_sample(c));
  }
  return samples;
}

const OpSamples kAttention(attentions());

}  // namespace
}  // namespace ridge::test
