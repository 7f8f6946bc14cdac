// The decoder of GptOptions.
#pragma once

#include "ridge/nn/model.h"

namespace ridge::nn {

/// x is (T) token ids, y (T) the ids that should follow each.
class Gpt final : public Model {
 public:
  Gpt(const ModelOptions& options, const SampleTypes& sample);
  Value logits(ModuleContext& context, Value x) const override;

 private:
  Value block(ModuleContext& context, Value x) const;
};

}  // namespace ridge::nn
