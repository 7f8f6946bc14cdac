// Made-up data that a model can learn: for smoke tests, benchmarks and examples without files.
#pragma once

#include <memory>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// With tokens: x and y i64 of `shape`, y one token further; a token follows its predecessor by a
/// fixed rule in three of four cases. Else x f32 of `shape`, standard normal numbers around a
/// pattern of the class, and y i64 []. `samples` for training, and eval_fraction as many others to
/// evaluate on. The same samples in every epoch.
std::unique_ptr<Dataset> open_random_dataset(const DataOptions& options, Split split);

}  // namespace ridge::data
