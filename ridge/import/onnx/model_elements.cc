#include "ridge/import/onnx/model_elements.h"

namespace ridge::onnx {

void ModelElements::check_files(const std::vector<const TensorProto*>& tensors) {
  const std::lock_guard lock(mutex_);
  files_.check_files(tensors);
}

Known ModelElements::read(const TensorProto& tensor) {
  const std::lock_guard lock(mutex_);
  return read_locked(tensor);
}

Known ModelElements::read_locked(const TensorProto& tensor) {
  const auto known = read_.find(&tensor);
  return known != read_.end() ? known->second
                              : read_.emplace(&tensor, files_.read(tensor)).first->second;
}

Known ModelElements::moved(const TensorProto& tensor, const std::vector<int64_t>& perm) {
  const std::lock_guard lock(mutex_);
  const std::pair key(&tensor, perm);
  const auto known = moved_.find(key);
  return known != moved_.end()
             ? known->second
             : moved_.emplace(key, read_locked(tensor).transposed(perm)).first->second;
}

}  // namespace ridge::onnx
