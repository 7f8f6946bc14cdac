// Text as bytes: what a language model learns from.
#pragma once

#include <memory>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x and y i64 [context], y one token further. A token is a byte, 0 to 255. Files come in the order
/// of their paths. Without eval_path the last eval_fraction of the samples is for evaluation.
///
/// A window is tokens i * context to (i + 1) * context of all files, joined with a byte 0. A line
/// or a file of n > 0 bytes fills n tokens, at most `context`; its last target is what would
/// follow: a line's end, 10, or a file's, 0. Behind them x is 0 and y is kPadLabel.
std::unique_ptr<Dataset> open_text_dataset(const DataOptions& options, Split split);

}  // namespace ridge::data
