// ResNet-18, as torchvision has it, over NHWC images.
#pragma once

#include "ridge/nn/model.h"

namespace ridge::nn {

/// x is (H, W, C), or (H, W) with one channel. Options: ResNet18Options.
class ResNet18 final : public Model {
 public:
  ResNet18(const ModelOptions& options, const SampleTypes& sample);
  Value logits(ModuleContext& context, Value x) const override;

 private:
  Value stem(ModuleContext& context, Value x) const;
};

}  // namespace ridge::nn
