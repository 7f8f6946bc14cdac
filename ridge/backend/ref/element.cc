#include "ridge/backend/ref/element.h"

namespace ridge::ref {

template <typename V>
std::vector<V> read_elements(const void* data, const TensorType& type) {
  std::vector<V> values(static_cast<size_t>(type.elements()));
  dispatch(type.dtype, [&]<typename T>(TypeTag<T>) {
    const T* elements = static_cast<const T*>(data);
    for (size_t i = 0; i < values.size(); ++i) values[i] = convert<V>(elements[i]);
  });
  return values;
}

template <typename V>
void write_elements(const std::vector<V>& values, void* data, DType dtype) {
  dispatch(dtype, [&]<typename T>(TypeTag<T>) {
    T* elements = static_cast<T*>(data);
    for (size_t i = 0; i < values.size(); ++i) elements[i] = convert<T>(values[i]);
  });
}

template std::vector<double> read_elements(const void*, const TensorType&);
template std::vector<int64_t> read_elements(const void*, const TensorType&);
template void write_elements(const std::vector<double>&, void*, DType);
template void write_elements(const std::vector<int64_t>&, void*, DType);

}  // namespace ridge::ref
