// The config.json that transformers writes beside the weights of a GPT-2.
#pragma once

#include <filesystem>

#include "ridge/nn/options.h"

namespace ridge {

/// The sizes of the model. UserError, opened by `path`, for what cannot be read, for another
/// model_type, and for a setting by which it would compute something else than ModelKind::kGpt.
nn::GptOptions read_gpt2_config(const std::filesystem::path& path);

}  // namespace ridge
