// MobileNetV2, as torchvision has it, over NHWC images.
#pragma once

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/nn/model.h"

namespace ridge::nn {

/// x is (H, W, C), or (H, W) with one channel. Options: MobileNetV2Options.
class MobileNetV2 final : public Model {
 public:
  MobileNetV2(const ModelOptions& options, const SampleTypes& sample);
  Value logits(ModuleContext& context, Value x) const override;

 private:
  struct Layer {
    int64_t channels;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t groups = 1;
    NormActivation activation = NormActivation::kRelu6;
  };
  struct Block {
    int64_t expansion;
    int64_t channels;
    int64_t stride;
  };
  int64_t scaled(int64_t channels) const;
  Value layer(ModuleContext& context, Value x, const Layer& layer) const;
  Value block(ModuleContext& context, Value x, const Block& block) const;
};

}  // namespace ridge::nn
