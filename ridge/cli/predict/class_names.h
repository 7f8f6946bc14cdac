// The names of the classes that an output has scores of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"

namespace ridge {

struct ClassScores {
  std::string output;              ///< The output with a score for each class.
  std::vector<std::string> names;  ///< They have the order of the scores; empty: unknown.
};

/// The names in a file, a line each, and the first output that has as many scores a row. UserError
/// where there is none, and for a file that cannot be read or holds no text.
ClassScores read_class_names(const std::string& path, const std::vector<DataSpec>& outputs);

/// The likeliest class of each row of scores, the first of equal ones; nothing for a row in which a
/// score is NaN.
std::vector<std::optional<int64_t>> likeliest(const Tensor& scores);

/// A line for the user about rows that have no likeliest class; empty where all have one.
std::string missing_classes_note(const std::vector<std::optional<int64_t>>& likeliest);

}  // namespace ridge
