// Rows of numbers from CSV or NPY files.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ridge/data/dataset.h"

namespace ridge::data {

/// x f32 [features], standardised by the training rows (a missing number becomes their mean, 0);
/// y i64 [] for task "classify", f32 [] for "regress". CSV: every column but `target` is a feature
/// and holds numbers; classes are the target's texts or whole numbers, sorted. NPY: rows x
/// features, and the target in the file `labels`, or else in the last column. Without eval_path a
/// part of the rows, spread evenly, is for evaluation.
/// With `trained` its columns, found by name, are the features, and its classes and numbers are
/// used; further columns are ignored, with a note. Null for training data alone.
std::unique_ptr<Dataset> open_table_dataset(const DataOptions& options,
                                            Split split,
                                            const DataDescription* trained);

/// The "x" of all rows of a file whose target nobody asks for, for a model trained on `trained`.
/// UserError as above; notes are added to `notes`.
std::vector<float> read_table_inputs(const std::string& path,
                                     const DataDescription& trained,
                                     std::vector<std::string>& notes);

}  // namespace ridge::data
