#include "ridge/nn/cnn.h"

#include <algorithm>

#include "ridge/graph/ops/pool.h"
#include "ridge/nn/layers.h"

namespace ridge::nn {

Cnn::Cnn(const ModelOptions& options, const SampleTypes& sample) : Model(options, sample) {
  const CnnOptions& cnn = options.cnn;
  const Shape& image = sample.x.shape;
  check_image();
  check(!cnn.widths.empty(), "cnn: widths is empty: give one number of channels a stage");
  check(cnn.widths.size() <= 32, "cnn: {} stages; at most 32 are possible", cnn.widths.size());
  for (int64_t width : cnn.widths)
    check(width >= 1, "cnn: a stage needs at least 1 channel; got {}", width);
  check(cnn.blocks >= 1 && cnn.blocks <= kMaxRepeats,
        "cnn: blocks out of range; got {}, expected 1 to {}",
        cnn.blocks,
        kMaxRepeats);
  check(cnn.momentum >= 0.0 && cnn.momentum <= 1.0,
        "cnn: momentum out of range; got {}, expected 0 to 1",
        cnn.momentum);
  check(cnn.stem_stride == 1 || cnn.stem_stride == 2 || cnn.stem_stride == 4,
        "cnn: stem_stride must be 1, 2 or 4; got {}",
        cnn.stem_stride);
  const int64_t smallest = cnn.stem_stride << (cnn.widths.size() - 1);
  check(
      std::min(image[0], image[1]) >= smallest,
      "cnn: the image is too small for {} stages, each of which but the first halves it, behind a "
      "stem of stride {}; got {}, "
      "expected at least {}x{}",
      cnn.widths.size(),
      cnn.stem_stride,
      to_string(sample.x),
      smallest,
      smallest);
  check_head(cnn.outputs, cnn.dropout);
}

Value Cnn::logits(ModuleContext& context, Value x) const {
  const CnnOptions& cnn = options().cnn;
  Value h = image_of(x);
  ResidualOptions residual{.channels = cnn.widths[0],
                           .stride = cnn.stem_stride,
                           .batch_norm = cnn.batch_norm,
                           .momentum = cnn.momentum};
  {
    const ModuleContext::Scope scope(context, "stem");
    h = conv_norm(context, h, residual);
  }
  for (size_t stage = 0; stage < cnn.widths.size(); ++stage)
    for (int64_t block = 0; block < cnn.blocks; ++block) {
      residual.channels = cnn.widths[stage];
      residual.stride = stage > 0 && block == 0 ? 2 : 1;
      const ModuleContext::Scope scope(context, fmt::format("stages.{}.{}", stage, block));
      h = residual_block(context, h, residual);
    }
  const ModuleContext::Scope scope(context, "head");
  return linear(context, dropout_layer(context, global_avg_pool(h), cnn.dropout), cnn.outputs);
}

}  // namespace ridge::nn
