// Layers of ridge.torch.quantize: their inputs are rounded to bytes, and multiplied by weights that
// are bytes.
#include "ridge/graph/ops/conv_i8.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/matmul_i8.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"
#include "ridge/import/builders/quantized.h"

namespace ridge::aten {
namespace {

// Places of the arguments that both operators have.
constexpr size_t kWeight = 1, kWeightScale = 2, kBias = 3, kScale = 4, kZero = 5;

Value rounded(const NodeContext& n, Value x) {
  check(x.dtype() == DType::kF32, "its input is {}", name_of(x.dtype()));
  const auto zero = static_cast<double>(n.integer(kZero));
  return rounded_to_integers(x / n.number_at(kScale), constant_like(x, zero), DType::kU8);
}

Value zero_point(const NodeContext& n) {
  return constant(n.graph(), {DType::kU8, {}}, static_cast<double>(n.integer(kZero)));
}

ScaledTo scaled(const NodeContext& n) {
  check(n.dtype(kWeight) == DType::kI8, "its weights are {}", name_of(n.dtype(kWeight)));
  return {.dtype = DType::kF32,
          .scale = n.value(kWeightScale) * n.number_at(kScale),
          .zero = {},
          .bias = n.has(kBias) ? n.value(kBias) : Value{}};
}

// quantized_linear(x, weight, weight_scale, bias, scale, zero)
void linear(NodeContext& n) {
  check(n.rank(0) >= 1 && n.rank(kWeight) == 2, "its input or its weights lack dimensions");
  const int64_t depth = n.shape(0).back();
  const Value rows = reshape(rounded(n, n.value(0)), {-1, depth});
  const Value y =
      matmul_i8(rows, n.value(kWeight), zero_point(n), {}, scaled(n), /*transpose_b=*/true);
  n.give(reshape(y, n.result_type().shape));
}

// quantized_conv2d(x, weight, weight_scale, bias, scale, zero, stride, padding, dilation, groups)
void conv(NodeContext& n) {
  check(n.rank(0) == 4, "it has {} dimensions; 4 are supported", n.rank(0));
  WindowFields window;
  const std::vector<int64_t> padding = n.list(7);
  check(padding.size() == 2, "its padding has {} elements", padding.size());
  window.stride = n.list(6);
  window.padding = {padding[0], padding[1], padding[0], padding[1]};
  window.dilation = n.list(8);
  window.check_fields("quantized_conv2d");
  n.give_image(0,
               conv2d_i8(rounded(n, n.image(0)),
                         n.moved(kWeight, {2, 3, 1, 0}),
                         zero_point(n),
                         {},
                         window,
                         n.integer(9),
                         scaled(n)));
}

constexpr OpRow kQuantizeOps[] = {
    {"ridge.quantized_conv2d", conv},
    {"ridge.quantized_linear", linear},
};

}  // namespace

std::span<const OpRow> quantize_ops() { return kQuantizeOps; }

}  // namespace ridge::aten
