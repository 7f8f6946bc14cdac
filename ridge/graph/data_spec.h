// The data of a model, as callers see them: what they give it, what they get of it, and in which
// sizes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ridge/base/type.h"

namespace ridge {

/// Sizes of named dimensions, such as {"B", 64}: what a ModelSource builds a graph for.
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

/// The named dimensions of all data in order, each with the least of its largest sizes.
std::vector<Dim> named_dims(const std::vector<DataSpec>& data);

/// Its type under a binding that has all of its dimensions.
TensorType bound_type(const DataSpec& spec, const Binding& binding);

/// "f32[B,T<=128,3]": T has a largest size.
std::string type_text(const DataSpec& spec);
/// The same behind the name: "x f32[B,T<=128,3]".
std::string to_string(const DataSpec& spec);

}  // namespace ridge
