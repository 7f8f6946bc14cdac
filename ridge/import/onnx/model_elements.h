// The elements of a model's tensors, for the graphs of all its bindings.
#pragma once

#include <map>
#include <mutex>

#include "ridge/import/onnx/elements.h"

namespace ridge::onnx {

/// Each tensor is read once: the constants of graphs of several bindings are the same memory. Any
/// thread may call any function at any time.
class ModelElements {
 public:
  explicit ModelElements(ElementFiles files) : files_(std::move(files)) {}

  void check_files(const std::vector<const TensorProto*>& tensors);
  /// The same as ElementFiles::read(). A tensor is known by its address: it is a part of the model,
  /// which outlives this.
  Known read(const TensorProto& tensor);

 private:
  std::mutex mutex_;
  ElementFiles files_;
  std::map<const TensorProto*, Known> read_;
};

}  // namespace ridge::onnx
