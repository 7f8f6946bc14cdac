// A model in which an input decides, site by site, which of two forms a result comes from: what
// every choice of sites does is measured by runs of one compiled model.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "ridge/base/function_ref.h"
#include "ridge/compress/editable_model.h"

namespace ridge::compress {

struct SwitchedModel {
  EditableModel model;
  /// The name of an input of the model, bool[sites]: true where a site multiplies bytes.
  std::string input;
};

/// Writes the switches of a model while its nodes are written.
class SiteSwitches {
 public:
  /// Adds the input to `model`, which outlives this.
  SiteSwitches(EditableModel& model, size_t sites);

  const std::string& input() const { return input_; }
  /// Appends nodes that give the output of `node`: the value that `write` appends nodes for, under
  /// the name that it gets, where the switch of `site` is on; else what `node` gives. Both have one
  /// shape.
  void add(size_t site,
           const EditableNode& node,
           FunctionRef<void(const std::string& in_bytes)> write,
           std::vector<EditableNode>& nodes);

 private:
  EditableModel& model_;
  std::string input_;
};

}  // namespace ridge::compress
