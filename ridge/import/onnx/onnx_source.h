// An ONNX model as one to predict with.
#pragma once

#include <vector>

#include "ridge/graph/model_source.h"
#include "ridge/import/onnx/onnx_model.h"

namespace ridge {

/// Inputs and outputs have the model's names; its weights are constants of its graphs.
class OnnxSource final : public ModelSource {
 public:
  /// Imports it for a few bindings, to see the sizes of its outputs, where inputs have named
  /// dimensions; else for the only one. UserError as OnnxModel::import() has it: for a model that
  /// can be imported for no binding here, for one that cannot for some by bind().
  explicit OnnxSource(OnnxModel model, ConvNorms norms = ConvNorms::kFolded);

  std::vector<DataSpec> inputs() const override { return model_.inputs(); }
  /// A first dimension has the name of one of an input only where the output has one row a sample,
  /// which depends on that sample alone.
  std::vector<DataSpec> outputs() const override { return outputs_; }
  std::vector<StateEntry> state() const override { return {}; }
  /// Ops that an exporter wrote out are recognised: other runtimes add up in other orders, too.
  SemanticClass highest_rewrite() const override { return SemanticClass::kReassociation; }

 private:
  ProgramGraphs build(const Binding& binding) const override;

  OnnxModel model_;
  ConvNorms norms_;
  std::vector<DataSpec> outputs_;
};

}  // namespace ridge
