// A trained model as one to predict with, for batches of any size.
#pragma once

#include <vector>

#include "ridge/graph/model_source.h"
#include "ridge/nn/training.h"

namespace ridge::nn {

/// Input "x" (B, of the sample's type), output "logits". The length T of a row of tokens is a named
/// dimension, too.
class LogitsSource final : public ModelSource {
 public:
  explicit LogitsSource(Training training);

  std::vector<DataSpec> inputs() const override { return {x_}; }
  std::vector<DataSpec> outputs() const override { return {logits_}; }
  std::vector<StateEntry> state() const override { return training_.model_state(); }

 private:
  ProgramGraphs build(const Binding& binding) const override;

  Training training_;
  DataSpec x_, logits_;
};

}  // namespace ridge::nn
