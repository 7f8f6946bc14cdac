// Text as bytes: what a language model learns from.
#pragma once

#include <memory>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x and y i64 [context], y one token further: sample i covers tokens i * context to
/// (i + 1) * context. A token is a byte, 0 to 255; files lie one after the other in the order of
/// their paths with a byte 0 between them. Without eval_path the last eval_fraction of the samples
/// is for evaluation.
std::unique_ptr<Dataset> open_text_dataset(const DataOptions& options, Split split);

}  // namespace ridge::data
