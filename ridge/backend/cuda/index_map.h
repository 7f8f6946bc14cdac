// How the elements of a tensor are read as those of a larger one, as text of index arithmetic.
#pragma once

#include <string>
#include <vector>

#include "ridge/graph/type.h"

namespace ridge::cuda {

/// Runs of dimensions from the innermost out, each with its stride in elements, 0 where the element
/// is repeated. There is at least one.
struct IndexMap {
  IndexMap(const Shape& from, const Shape& to);

  struct Run {
    int64_t size, stride;
  };
  std::vector<Run> runs;

  /// True when every element reads the same one.
  bool is_one() const { return runs.size() == 1 && runs[0].stride == 0; }
  /// True when each element reads that of its own number.
  bool is_same() const { return runs.size() == 1 && runs[0].stride == 1; }
  /// Elements that follow each other are neighbours (stride 1), or one, over pieces of so many.
  bool keeps_pieces(int64_t size) const { return runs[0].stride <= 1 && runs[0].size % size == 0; }
  /// Where the element of number `at` lies; `at` is the name of an unsigned number, and a multiple
  /// of `step`.
  std::string text(const std::string& at, int64_t step = 1) const;
};

}  // namespace ridge::cuda
