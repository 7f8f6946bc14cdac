#include "ridge/backend/ref/walk.h"

namespace ridge::ref {

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

std::vector<size_t> offsets(const Shape& shape,
                            const std::vector<int64_t>& strides,
                            int64_t start) {
  std::vector<size_t> result(static_cast<size_t>(numel(shape)));
  std::vector<int64_t> index(shape.size(), 0);
  int64_t offset = start;
  for (size_t& each : result) {
    each = static_cast<size_t>(offset);
    // Step to the next index, as an odometer does: an axis at its end goes back to 0.
    for (size_t axis = shape.size(); axis-- > 0;) {
      offset += strides[axis];
      if (++index[axis] < shape[axis]) break;
      offset -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return result;
}

std::vector<int64_t> index_of(int64_t position, const Shape& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t axis = shape.size(); axis-- > 0;) {
    index[axis] = position % shape[axis];
    position /= shape[axis];
  }
  return index;
}

AxisView::AxisView(const Shape& shape, int64_t axis) {
  const auto a = static_cast<size_t>(axis);
  for (size_t i = 0; i < a; ++i) outer *= static_cast<size_t>(shape[i]);
  size = static_cast<size_t>(shape[a]);
  for (size_t i = a + 1; i < shape.size(); ++i) inner *= static_cast<size_t>(shape[i]);
}

}  // namespace ridge::ref
