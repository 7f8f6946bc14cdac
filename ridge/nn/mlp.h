// The multi-layer perceptron of MlpOptions.
#pragma once

#include "ridge/nn/model.h"

namespace ridge::nn {

class Mlp final : public Model {
 public:
  Mlp(const ModelOptions& options, const SampleTypes& sample);
  Value logits(ModuleContext& context, Value x) const override;
};

}  // namespace ridge::nn
