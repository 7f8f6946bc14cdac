// Sizes for the named dimensions of a model's inputs where no data give them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/graph/data_spec.h"

namespace ridge {

/// The dimensions of samples: those with a name that an input begins with and no input has
/// elsewhere. In the order of the inputs.
std::vector<std::string> sample_dims(const std::vector<DataSpec>& inputs);

struct InputSizes {
  Binding binding = {};
  std::vector<std::string> missing = {};  ///< Dimensions that got no size, in the order of inputs.
};

/// The size of a named dimension is that of `given`, else `samples` for a dimension of samples,
/// else its largest size where it has one. UserError for a name in `given` that no input has (with
/// the nearest) and for a size that does not suit.
InputSizes input_sizes(const std::vector<DataSpec>& inputs, const Binding& given, int64_t samples);

/// One UserError that names all dimensions without a size.
[[noreturn]] void refuse_missing_sizes(const std::vector<std::string>& missing);

/// The sizes that texts as "NAME=SIZE" give. UserError for any other text, and for a name that
/// comes twice.
Binding parse_sizes(const std::vector<std::string>& texts);

}  // namespace ridge
