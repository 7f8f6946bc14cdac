#include "ridge/nn/mobilenet.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/nn/layers.h"

namespace ridge::nn {
namespace {

struct Stage {
  int64_t expansion, channels, blocks, stride;
};

// Table 2 of the paper.
constexpr Stage kStages[] = {{1, 16, 1, 1},
                             {6, 24, 2, 2},
                             {6, 32, 3, 2},
                             {6, 64, 4, 2},
                             {6, 96, 3, 1},
                             {6, 160, 3, 2},
                             {6, 320, 1, 1}};
constexpr int64_t kStemChannels = 32, kLastChannels = 1280;
constexpr int64_t kDivisor = 8;
constexpr double kHeadDeviation = 0.01;

// The nearest multiple of 8 that is not below 0.9 of the number.
int64_t rounded_channels(double channels) {
  const auto half_up = static_cast<int64_t>(channels + 0.5 * static_cast<double>(kDivisor));
  const int64_t rounded = std::max(kDivisor, half_up / kDivisor * kDivisor);
  return static_cast<double>(rounded) < 0.9 * channels ? rounded + kDivisor : rounded;
}

}  // namespace

MobileNetV2::MobileNetV2(const ModelOptions& options, const SampleTypes& sample)
    : Model(options, sample) {
  const MobileNetV2Options& net = options.mobilenetv2;
  check_image();
  check(net.multiplier >= 0.01 && net.multiplier <= 100.0,
        "mobilenetv2: multiplier out of range; got {}, expected 0.01 to 100",
        net.multiplier);
  check(net.momentum >= 0.0 && net.momentum <= 1.0,
        "mobilenetv2: momentum out of range; got {}, expected 0 to 1",
        net.momentum);
  check_head(net.outputs, net.dropout);
}

int64_t MobileNetV2::scaled(int64_t channels) const {
  return rounded_channels(static_cast<double>(channels) * options().mobilenetv2.multiplier);
}

// A convolution without bias, batch norm and the activation.
Value MobileNetV2::layer(ModuleContext& context, Value x, const Layer& layer) const {
  Value y;
  {
    const ModuleContext::Scope scope(context, "conv");
    y = conv(context,
             x,
             layer.channels,
             {.kernel = layer.kernel,
              .stride = layer.stride,
              .groups = layer.groups,
              .bias = false,
              .start = ConvStart::kFanOut});
  }
  const ModuleContext::Scope scope(context, "norm");
  return batch_norm_layer(context, y, options().mobilenetv2.momentum, layer.activation);
}

Value MobileNetV2::block(ModuleContext& context, Value x, const Block& block) const {
  const int64_t hidden = x.dim(3) * block.expansion;
  Value y = x;
  if (block.expansion > 1) {
    const ModuleContext::Scope scope(context, "expand");
    y = layer(context, y, {.channels = hidden});
  }
  {
    const ModuleContext::Scope scope(context, "depthwise");
    y = layer(
        context, y, {.channels = hidden, .kernel = 3, .stride = block.stride, .groups = hidden});
  }
  {
    const ModuleContext::Scope scope(context, "project");
    y = layer(context, y, {.channels = block.channels, .activation = NormActivation::kNone});
  }
  return block.stride == 1 && x.dim(3) == block.channels ? x + y : y;
}

Value MobileNetV2::logits(ModuleContext& context, Value x) const {
  const MobileNetV2Options& net = options().mobilenetv2;
  Value h = image_of(x);
  {
    const ModuleContext::Scope scope(context, "stem");
    h = layer(context, h, {.channels = scaled(kStemChannels), .kernel = 3, .stride = 2});
  }
  int64_t number = 0;
  for (const Stage& stage : kStages)
    for (int64_t i = 0; i < stage.blocks; ++i) {
      const ModuleContext::Scope scope(context, fmt::format("blocks.{}", number++));
      h = block(context, h, {stage.expansion, scaled(stage.channels), i == 0 ? stage.stride : 1});
    }
  {
    const ModuleContext::Scope scope(context, "last");
    h = layer(
        context,
        h,
        {.channels = std::max(kLastChannels, net.multiplier > 1 ? scaled(kLastChannels) : 0)});
  }
  const ModuleContext::Scope scope(context, "head");
  return linear(context,
                dropout_layer(context, global_avg_pool(h), net.dropout),
                net.outputs,
                {.deviation = kHeadDeviation});
}

}  // namespace ridge::nn
