#include "ridge/nn/resnet.h"

#include "ridge/graph/ops/pool.h"
#include "ridge/nn/layers.h"

namespace ridge::nn {

ResNet18::ResNet18(const ModelOptions& options, const SampleTypes& sample)
    : Model(options, sample) {
  const ResNet18Options& net = options.resnet18;
  check_image();
  check(net.width >= 1 && net.width <= 1 << 20,
        "resnet18: width out of range; got {}, expected 1 to {}",
        net.width,
        1 << 20);
  check(net.momentum >= 0.0 && net.momentum <= 1.0,
        "resnet18: momentum out of range; got {}, expected 0 to 1",
        net.momentum);
  check_head(net.outputs, /*dropout=*/0.0);
}

Value ResNet18::stem(ModuleContext& context, Value x) const {
  const ResNet18Options& net = options().resnet18;
  const bool small = net.stem == Stem::kCifar;
  const ModuleContext::Scope scope(context, "stem");
  const Value y = conv_norm(context,
                            x,
                            {.channels = net.width,
                             .stride = small ? 1 : 2,
                             .momentum = net.momentum,
                             .start = ConvStart::kFanOut},
                            small ? 3 : 7);
  if (small) return y;
  PoolFields pool;
  pool.kernel = {3, 3};
  pool.window.stride = {2, 2};
  pool.window.padding = {1, 1, 1, 1};
  return max_pool2d(y, pool);
}

Value ResNet18::logits(ModuleContext& context, Value x) const {
  const ResNet18Options& net = options().resnet18;
  Value h = stem(context, image_of(x));
  for (int stage = 0; stage < 4; ++stage)
    for (int block = 0; block < 2; ++block) {
      const ModuleContext::Scope scope(context, fmt::format("stages.{}.{}", stage, block));
      h = residual_block(context,
                         h,
                         {.channels = net.width << stage,
                          .stride = stage > 0 && block == 0 ? 2 : 1,
                          .momentum = net.momentum,
                          .start = ConvStart::kFanOut});
    }
  const ModuleContext::Scope scope(context, "head");
  return linear(context, global_avg_pool(h), net.outputs);
}

}  // namespace ridge::nn
