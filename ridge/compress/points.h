// The places of a graph where activations become bytes.
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ridge/compress/sites.h"

namespace ridge::compress {

/// Values that get a QuantizeLinear and a DequantizeLinear, and the inputs of nodes that read what
/// the latter gives.
struct QuantizedPoints {
  /// By value: the value whose range it has. What only moves elements, or takes the largest of
  /// some, has the scale of its input, and the inputs of a Concat that of its result, so that
  /// engines keep the bytes.
  std::map<std::string, std::string> range_of;
  /// By node and input.
  std::set<std::pair<size_t, size_t>> inputs;
  /// The values of range_of whose makers give bytes themselves, and the results of sites that
  /// become one, maybe behind bounds: here engines pass bytes on.
  std::set<std::string> passed;
};

/// Points for the sites whose outputs are in `chosen`: their inputs. Behind convolutions these also
/// are the inputs of poolings and of operators that move elements, before a site; and all inputs of
/// an Add (a residual connection) or Concat that leads to one.
QuantizedPoints points_of(const EditableModel& model,
                          const std::vector<Site>& sites,
                          const std::set<std::string>& chosen);

}  // namespace ridge::compress
