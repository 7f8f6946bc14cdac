#include "ridge/io/elements.h"

#include <algorithm>

#include "ridge/base/error.h"

namespace ridge {
namespace {

// Copies elements of `kSize` bytes: `shape` is that of the result, `strides` those of the source in
// elements, by axis of the result, which has at least one.
template <size_t kSize>
void copy_strided(const std::byte* from,
                  std::byte* to,
                  const Shape& shape,
                  const std::vector<int64_t>& strides) {
  const size_t last = shape.size() - 1;
  std::vector<int64_t> index(shape.size(), 0);
  for (int64_t offset = 0;;) {
    const std::byte* source = from + static_cast<size_t>(offset) * kSize;
    const size_t step = static_cast<size_t>(strides[last]) * kSize;
    for (int64_t i = 0; i < shape[last]; ++i, source += step, to += kSize)
      std::memcpy(to, source, kSize);
    size_t axis = last;
    for (; axis > 0; --axis) {
      offset += strides[axis - 1];
      if (++index[axis - 1] < shape[axis - 1]) break;
      offset -= strides[axis - 1] * shape[axis - 1];
      index[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

}  // namespace

void swap_bytes(std::span<std::byte> data, size_t element_size) {
  if (element_size == 1) return;
  for (size_t i = 0; i + element_size <= data.size(); i += element_size)
    std::reverse(data.begin() + static_cast<ptrdiff_t>(i),
                 data.begin() + static_cast<ptrdiff_t>(i + element_size));
}

Tensor transposed_copy(const TensorType& type, const void* data, std::span<const int64_t> perm) {
  Shape shape;
  // Strides in elements of the source, by axis of the result.
  std::vector<int64_t> strides(perm.size(), 1);
  for (size_t i = 0; i < perm.size(); ++i) {
    const auto from = static_cast<size_t>(perm[i]);
    shape.push_back(type.shape[from]);
    for (size_t axis = from + 1; axis < type.shape.size(); ++axis) strides[i] *= type.shape[axis];
  }
  Tensor moved({type.dtype, shape});
  const auto* from = static_cast<const std::byte*>(data);
  auto* to = static_cast<std::byte*>(moved.data());
  if (perm.empty())
    std::memcpy(to, from, moved.bytes());
  else
    dispatch(type.dtype,
             [&]<typename T>(TypeTag<T>) { copy_strided<sizeof(T)>(from, to, shape, strides); });
  return moved;
}

void check_bools(DType dtype, std::span<const std::byte> data, std::string_view where) {
  if (dtype != DType::kBool) return;
  const auto bad =
      std::find_if(data.begin(), data.end(), [](std::byte b) { return b > std::byte{1}; });
  if (bad == data.end()) return;
  throw UserError(fmt::format("{}: element {} is the byte {}, and a bool is 0 or 1",
                              where,
                              bad - data.begin(),
                              std::to_integer<int>(*bad)));
}

}  // namespace ridge
