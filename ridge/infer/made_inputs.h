// Data that are made up, to time a model on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "ridge/base/tensor.h"
#include "ridge/graph/data_spec.h"

namespace ridge {

class Graph;
class ModelSource;

/// The number of rows of the smallest table that elements of an input are looked up in, as they are
/// or counted from the table's end. Nothing where there is no such table.
std::optional<int64_t> index_bound(const Graph& graph, const std::string& input);

struct MadeInputs {
  NamedTensors tensors = {};
  /// The bound of each input of integers, where index_bound() knows one.
  std::map<std::string, std::optional<int64_t>> bounds = {};
};

/// One tensor an input: standard normal floats, integers from 0 to below their bound, or 0 and 1
/// where there is none. The same for the same seed on any machine. UserError for a binding that
/// ModelSource::bind() refuses.
MadeInputs make_inputs(const ModelSource& source, const Binding& binding, uint64_t seed);

}  // namespace ridge
