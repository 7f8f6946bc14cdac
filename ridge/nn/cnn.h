// The residual convolution net of CnnOptions.
#pragma once

#include "ridge/nn/model.h"

namespace ridge::nn {

/// x is (H, W, C), or (H, W) with one channel.
class Cnn final : public Model {
 public:
  Cnn(const ModelOptions& options, const SampleTypes& sample);
  Value logits(ModuleContext& context, Value x) const override;
};

}  // namespace ridge::nn
