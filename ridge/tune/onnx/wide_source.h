// A model in f64: what its outputs would be if nothing were rounded.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "ridge/graph/model_source.h"

namespace ridge {

/// Inputs keep their types; all floats within and all that come out are f64.
class WideSource final : public ModelSource {
 public:
  /// With `operands`, those of contractions, but not of attention, are rounded to that dtype, and
  /// so are results of convolutions: what 16 bits do to the formula on the CPU (place_casts.cc),
  /// and nothing else.
  explicit WideSource(std::shared_ptr<const ModelSource> model, std::optional<DType> operands = {})
      : model_(std::move(model)), operands_(operands) {}

  std::vector<DataSpec> inputs() const override { return model_->inputs(); }
  std::vector<DataSpec> outputs() const override;
  std::vector<StateEntry> state() const override;

 private:
  ProgramGraphs build(const Binding& binding) const override;

  std::shared_ptr<const ModelSource> model_;
  std::optional<DType> operands_;
};

}  // namespace ridge
