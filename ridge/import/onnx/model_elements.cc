#include "ridge/import/onnx/model_elements.h"

namespace ridge::onnx {

void ModelElements::check_files(const std::vector<const TensorProto*>& tensors) {
  const std::lock_guard lock(mutex_);
  files_.check_files(tensors);
}

Known ModelElements::read(const TensorProto& tensor) {
  const std::lock_guard lock(mutex_);
  const auto known = read_.find(&tensor);
  return known != read_.end() ? known->second
                              : read_.emplace(&tensor, files_.read(tensor)).first->second;
}

}  // namespace ridge::onnx
