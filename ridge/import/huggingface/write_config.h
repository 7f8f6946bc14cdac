// The config.json with which transformers opens the weights of a model that was trained here.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/io/safetensors.h"
#include "ridge/nn/options.h"

namespace ridge {

/// The text of that file for GPT2LMHeadModel or ResNetForImageClassification; nothing where
/// transformers has no model that computes the same. `weights` have Ridge's names; `classes` may be
/// empty.
std::optional<std::string> transformers_config(const nn::ModelOptions& options,
                                               const SafetensorsView& weights,
                                               const std::vector<std::string>& classes);

}  // namespace ridge
