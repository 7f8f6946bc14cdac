// Rows of numbers from CSV or NPY files.
#pragma once

#include <memory>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x f32 [features], standardised by the training rows (a missing number becomes their mean, 0);
/// y i64 [] for task "classify", f32 [] for "regress". CSV: every column but `target` is a feature
/// and holds numbers; classes are the target's texts or whole numbers, sorted. NPY: rows x
/// features, and the target in the file `labels`, or else in the last column. Without eval_path a
/// part of the rows, spread evenly, is for evaluation.
std::unique_ptr<Dataset> open_table_dataset(const DataOptions& options, Split split);

}  // namespace ridge::data
