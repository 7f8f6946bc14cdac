// The tensors of models as other libraries name them and lay them out: GPT-2 of transformers,
// ResNet-18 of transformers and of torchvision.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/io/safetensors.h"
#include "ridge/nn/options.h"

namespace ridge {

/// Whose names the tensors of a file have.
enum class TensorNames : uint8_t { kRidge, kHuggingFace, kTorchvision };
constexpr std::string_view names_of(TensorNames) { return "ridge|huggingface|torchvision"; }

/// The name there of the tensor `own` of a model of that kind; `own` itself where it has none.
std::string foreign_name(nn::ModelKind kind, TensorNames names, const std::string& own);

/// Tensors under other names.
struct RenamedTensors {
  TensorNames names = TensorNames::kRidge;  ///< Their names before, or now: those of the others.
  std::vector<TensorView> tensors = {};     ///< They view the memory they lay in, or `copies`.
  std::vector<Tensor> copies = {};          ///< Those that needed another order of axes.
};

/// The tensors of a file of weights with Ridge's names and in its order of axes; nothing where no
/// other library that has models of that kind names tensors so. UserError, opened by `source`, for
/// tensors that the model has not, and for a head of its own of GPT-2, whose table is its head
/// here.
std::optional<RenamedTensors> with_own_names(const SafetensorsView& file,
                                             nn::ModelKind kind,
                                             std::string_view source);

/// The tensors of a model as the other library has them. UserError where it has no model of that
/// kind.
RenamedTensors with_foreign_names(std::vector<TensorView> own,
                                  nn::ModelKind kind,
                                  TensorNames names);

}  // namespace ridge
