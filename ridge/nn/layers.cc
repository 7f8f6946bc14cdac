#include "ridge/nn/layers.h"

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/attention.h"
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/norm.h"
#include "ridge/graph/ops/random.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::nn {
namespace {

constexpr double kBatchNormEps = 1e-5;

Value add_bias(ModuleContext& context, Value y, Initializer init) {
  return y + context.parameter("bias", {y.dim(-1)}, init);
}

}  // namespace

Value linear(ModuleContext& context, Value x, int64_t outputs, WeightOptions options) {
  const int64_t inputs = x.dim(-1);
  const bool by_fan_in = options.deviation == 0.0;
  const Initializer fan_in = Initializer::fan_in(inputs);
  const Initializer init = by_fan_in ? fan_in : Initializer::normal(options.deviation);
  const Value y = matmul(x, context.parameter("weight", {inputs, outputs}, init));
  if (!options.bias) return y;
  return add_bias(context, y, by_fan_in ? fan_in : Initializer::zeros());
}

Value conv(ModuleContext& context, Value x, int64_t channels, ConvOptions options) {
  const int64_t kernel = options.kernel, pad = kernel / 2;
  check(options.groups >= 1 && x.dim(3) % options.groups == 0,
        "conv: {} groups do not divide the {} channels",
        options.groups,
        x.dim(3));
  const int64_t inputs = x.dim(3) / options.groups;
  const Initializer fan_in = Initializer::fan_in(kernel * kernel * inputs);
  const Initializer init = options.start == ConvStart::kFanIn
                               ? fan_in
                               : Initializer::fan_out(kernel * kernel * channels);
  const Value weight = context.parameter("weight", {kernel, kernel, inputs, channels}, init);
  WindowFields window;
  window.stride = {options.stride, options.stride};
  window.padding = {pad, pad, pad, pad};
  const Value y = conv2d(x, weight, window, options.groups);
  return options.bias ? add_bias(context, y, fan_in) : y;
}

Value batch_norm_layer(ModuleContext& context,
                       Value x,
                       double momentum,
                       NormActivation activation) {
  const Shape channels{x.dim(-1)};
  const Value scale = context.parameter("scale", channels, Initializer::ones());
  const Value shift = context.parameter("shift", channels, Initializer::zeros());
  const Value mean = context.statistic("mean", channels, 0.0);
  const Value variance = context.statistic("variance", channels, 1.0);
  if (!context.training())
    return activated(batch_norm_inference(x, scale, shift, mean, variance), activation);
  const int64_t values = numel(x.shape()) / x.dim(-1);
  check(values > 1,
        "batch norm needs more than one value a channel to train; got {} at '{}': use a larger "
        "batch, and train.drop_last where it is the last of an epoch",
        to_string(x.type()),
        scale.node->site.name);
  const BatchNormResult result = batch_norm(x, scale, shift, kBatchNormEps, activation);
  const double unbiased = static_cast<double>(values) / static_cast<double>(values - 1);
  const auto moved = [&](Value running, Value batch, double factor) {
    return running * (1.0 - momentum) + batch * (momentum * factor);
  };
  context.update_statistic(mean, moved(mean, result.mean, 1.0));
  context.update_statistic(variance, moved(variance, result.variance, unbiased));
  return result.y;
}

Value layer_norm_layer(ModuleContext& context, Value x) {
  const Shape width{x.dim(-1)};
  const Value scale = context.parameter("scale", width, Initializer::ones());
  return layer_norm(x, scale, context.parameter("shift", width, Initializer::zeros()));
}

Value embedding_table(ModuleContext& context, int64_t rows, int64_t width, double deviation) {
  return context.parameter("weight", {rows, width}, Initializer::normal(deviation));
}

Value dropout_layer(ModuleContext& context, Value x, double p) {
  if (!context.training() || p == 0.0) return x;
  return dropout(x, context.rng(), p, context.samples());
}

Value causal_self_attention(ModuleContext& context, Value x, const AttentionLayerOptions& options) {
  const int64_t width = x.dim(2);
  Value qkv;
  {
    const ModuleContext::Scope scope(context, "qkv");
    qkv = linear(context, x, 3 * width, {.deviation = options.deviation});
  }
  const Value joined = packed_attention(qkv, options.heads, {.causal = true});
  const ModuleContext::Scope scope(context, "out");
  return linear(context, joined, width, {.deviation = options.output_deviation});
}

Value feed_forward(ModuleContext& context, Value x, const FeedForwardOptions& options) {
  Value hidden;
  {
    const ModuleContext::Scope scope(context, "up");
    hidden = linear(context, x, options.hidden, {.deviation = options.deviation});
  }
  hidden = gelu(hidden, GeluForm::kTanh);
  const ModuleContext::Scope scope(context, "down");
  return linear(context, hidden, x.dim(-1), {.deviation = options.output_deviation});
}

Value conv_norm(ModuleContext& context, Value x, const ResidualOptions& options, int64_t kernel) {
  Value y;
  {
    const ModuleContext::Scope scope(context, "conv");
    y = conv(context,
             x,
             options.channels,
             {.kernel = kernel,
              .stride = options.stride,
              .bias = !options.batch_norm,
              .start = options.start});
  }
  if (!options.batch_norm) return activated(y, options.activation);
  const ModuleContext::Scope scope(context, "norm");
  return batch_norm_layer(context, y, options.momentum, options.activation);
}

Value residual_block(ModuleContext& context, Value x, const ResidualOptions& options) {
  Value y, shortcut = x;
  {
    const ModuleContext::Scope scope(context, "first");
    y = conv_norm(context, x, options);
  }
  {
    ResidualOptions second = options;
    second.stride = 1;
    second.activation = NormActivation::kNone;
    const ModuleContext::Scope scope(context, "second");
    y = conv_norm(context, y, second);
  }
  if (y.shape() != x.shape()) {
    const ModuleContext::Scope scope(context, "shortcut");
    ResidualOptions projection = options;
    projection.activation = NormActivation::kNone;
    shortcut = conv_norm(context, x, projection, /*kernel=*/1);
  }
  return relu(y + shortcut);
}

}  // namespace ridge::nn
