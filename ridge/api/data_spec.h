// The data of a model, as callers see them: what they give it, what they get of it, and in which
// sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ridge/api/dtype.h"

namespace ridge {

/// Sizes of named dimensions, such as {"B", 64}.
using Binding = std::map<std::string, int64_t>;

/// A dimension of a datum: a size, or a name to which each binding gives one.
struct Dim {
  // Not explicit: lists of dimensions are written as they are read, {"B", 28, 28}.
  Dim(int64_t fixed) : size(fixed) {}
  Dim(std::string named, int64_t largest = 0) : name(std::move(named)), size(largest) {}
  Dim(const char* named, int64_t largest = 0) : name(named), size(largest) {}
  bool operator==(const Dim&) const = default;

  std::string name = {};  ///< Empty: it has `size` in every binding.
  int64_t size = 0;       ///< The largest size of one with a name; 0: any.
};

/// An input or output.
struct DataSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<Dim> dims = {};

  bool operator==(const DataSpec&) const = default;
};

}  // namespace ridge
