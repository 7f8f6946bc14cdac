// Convolutions and pooling of images, with the bias and the batch norm behind them.
#include <optional>

#include "ridge/export/onnx/export_table.h"
#include "ridge/export/onnx/ops/patterns.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/rewrite.h"

namespace ridge::onnx {
namespace {

// Weights (H, W, I, O) as (O, I, H, W).
std::string kernel_of(NodeExport& n, Value weight) {
  const std::vector<int64_t> perm{3, 2, 0, 1};
  if (n.to().is_weight(weight)) return n.to().weight(*weight.node, perm);
  return n.to().transpose(n.site(), n.to().name(weight), perm);
}

AttributeList window_attributes(std::span<const int64_t> kernel, const WindowFields& window) {
  return AttributeList()
      .integers("kernel_shape", kernel)
      .integers("strides", window.stride)
      .integers("pads", window.padding);
}

// Writes the convolution `conv` for the node, with a bias where one is named.
void give_convolution(NodeExport& n, const Node& conv, const std::string& bias) {
  const auto& op = conv.op_as<Conv2d>();
  const Value x = conv.inputs[0], weight = conv.inputs[1];
  const AttributeList attributes = window_attributes(std::span(weight.shape()).first(2), op.window)
                                       .integers("dilations", op.window.dilation)
                                       .integer("group", op.groups);
  std::vector<std::string> inputs{n.to().image(x), kernel_of(n, weight)};
  if (!bias.empty()) inputs.push_back(bias);
  n.give_image(n.add("Conv", std::move(inputs), attributes));
}

void conv2d(NodeExport& n) { give_convolution(n, n.node(), {}); }

void max_pool2d(NodeExport& n) {
  const PoolFields& pool = n.op<MaxPool2d>().pool;
  n.give_image(
      n.add("MaxPool", {n.to().image(n.in(0))}, window_attributes(pool.kernel, pool.window)));
}

void avg_pool2d(NodeExport& n) {
  const auto& op = n.op<AvgPool2d>();
  const AttributeList attributes = window_attributes(op.pool.kernel, op.pool.window)
                                       .integer("count_include_pad", op.count_padding ? 1 : 0);
  n.give_image(n.add("AveragePool", {n.to().image(n.in(0))}, attributes));
}

constexpr ExportRow kImageRows[] = {
    {"avg_pool2d", avg_pool2d},
    {"conv2d", conv2d},
    {"max_pool2d", max_pool2d},
};

/// A batch norm by running statistics, written out.
struct NormParts {
  Value x = {}, scale = {}, shift = {}, mean = {}, variance = {};
  double eps = 0;
};

// scale * rsqrt(variance + eps)
bool read_scale(Value factor, NormParts& parts) {
  if (!factor.node->is<Mul>()) return false;
  parts.scale = factor.node->inputs[0];
  const Node& root = *factor.node->inputs[1].node;
  if (!root.is<Rsqrt>() || !root.inputs[0].node->is<Add>()) return false;
  const Node& sum = *root.inputs[0].node;
  const auto eps = splat_of(sum.inputs[1]);
  if (!eps) return false;
  parts.variance = sum.inputs[0];
  parts.eps = *eps;
  return true;
}

std::optional<NormParts> norm_parts(const Node& add) {
  const Node& product = *add.inputs[0].node;
  if (!product.is<Mul>() || !product.inputs[0].node->is<Sub>()) return std::nullopt;
  const Node& difference = *product.inputs[0].node;
  NormParts parts{.x = difference.inputs[0],
                  .shift = channels_of(add.inputs[1]),
                  .mean = channels_of(difference.inputs[1])};
  const Value factor = channels_of(product.inputs[1]);
  if (!parts.shift || !parts.mean || !factor || !read_scale(factor, parts)) return std::nullopt;
  return parts.x.rank() == 4 ? std::optional(parts) : std::nullopt;
}

}  // namespace

Value channels_of(Value broadcast) {
  if (!broadcast.node->is<Broadcast>()) return {};
  const Value channels = broadcast.node->inputs[0];
  return channels.rank() == 1 && channels.dim(0) == broadcast.dim(-1) ? channels : Value{};
}

bool give_batch_norm(NodeExport& n) {
  const auto parts = norm_parts(n.node());
  if (!parts) return false;
  n.give_image(n.add("BatchNormalization",
                     {n.to().image(parts->x),
                      n.to().name(parts->scale),
                      n.to().name(parts->shift),
                      n.to().name(parts->mean),
                      n.to().name(parts->variance)},
                     AttributeList().number("epsilon", parts->eps)));
  return true;
}

bool give_convolution_with_bias(NodeExport& n) {
  const Value bias = channels_of(n.in(1));
  if (!n.in(0).node->is<Conv2d>() || !bias) return false;
  give_convolution(n, *n.in(0).node, n.to().name(bias));
  return true;
}

std::span<const ExportRow> image_exports() { return kImageRows; }

}  // namespace ridge::onnx
