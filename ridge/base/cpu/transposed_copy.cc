#include "ridge/base/cpu/transposed_copy.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <vector>

#include "ridge/base/cpu/parallel.h"

namespace ridge {
namespace {

// An axis of a result, with the distance between its elements there and in the source, in elements.
struct MovedAxis {
  int64_t size, to_step, from_step;
};

constexpr int64_t kBlock = 16;            // elements of a result that lie side by side
constexpr int64_t kGrainBytes = 1 << 18;  // bytes that pay for a thread

// Copies `count` neighbours of the result for each place of the other axes, which are in the order
// of the source, the outermost first: so many runs of the source are read side by side.
template <size_t kSize>
void copy_block(const std::byte* from,
                std::byte* to,
                const std::vector<MovedAxis>& axes,
                int64_t count,
                int64_t from_step) {
  std::vector<int64_t> index(axes.size(), 0);
  const size_t step = static_cast<size_t>(from_step) * kSize;
  for (int64_t source = 0, target = 0;;) {
    const std::byte* element = from + static_cast<size_t>(source) * kSize;
    std::byte* at = to + static_cast<size_t>(target) * kSize;
    for (int64_t i = 0; i < count; ++i, element += step, at += kSize)
      std::memcpy(at, element, kSize);
    size_t axis = axes.size();
    for (; axis > 0; --axis) {
      const MovedAxis& a = axes[axis - 1];
      source += a.from_step;
      target += a.to_step;
      if (++index[axis - 1] < a.size) break;
      source -= a.from_step * a.size;
      target -= a.to_step * a.size;
      index[axis - 1] = 0;
    }
    if (axis == 0) return;
  }
}

// `axes` are those of the result, the last one innermost.
template <size_t kSize>
void copy_moved(const std::byte* from, std::byte* to, std::vector<MovedAxis> axes) {
  const MovedAxis last = axes.back();
  axes.pop_back();
  std::stable_sort(axes.begin(), axes.end(), [](const MovedAxis& a, const MovedAxis& b) {
    return a.from_step > b.from_step;
  });
  int64_t others = 1;
  for (const MovedAxis& axis : axes) others *= axis.size;
  const int64_t blocks = (last.size + kBlock - 1) / kBlock;
  const int64_t block_bytes = others * kBlock * static_cast<int64_t>(kSize);
  parallel_for(
      blocks, std::max<int64_t>(1, kGrainBytes / block_bytes), [&](int64_t b, int64_t end) {
        for (; b < end; ++b) {
          const int64_t first = b * kBlock;
          copy_block<kSize>(from + static_cast<size_t>(first * last.from_step) * kSize,
                            to + static_cast<size_t>(first) * kSize,
                            axes,
                            std::min(kBlock, last.size - first),
                            last.from_step);
        }
      });
}

}  // namespace

Shape transposed_shape(const Shape& shape, std::span<const int64_t> perm) {
  Shape result;
  for (const int64_t axis : perm) result.push_back(shape[static_cast<size_t>(axis)]);
  return result;
}

void transpose_elements(const TensorType& type,
                        const void* from,
                        std::span<const int64_t> perm,
                        void* to) {
  const auto product = [](Shape::const_iterator begin, Shape::const_iterator end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  const Shape shape = transposed_shape(type.shape, perm);
  if (perm.empty()) {
    std::memcpy(to, from, static_cast<size_t>(type.bytes()));
    return;
  }
  std::vector<MovedAxis> axes;
  for (size_t i = 0; i < perm.size(); ++i)
    axes.push_back({shape[i],
                    product(shape.begin() + static_cast<ptrdiff_t>(i) + 1, shape.end()),
                    product(type.shape.begin() + perm[i] + 1, type.shape.end())});
  dispatch(type.dtype, [&]<typename T>(TypeTag<T>) {
    copy_moved<sizeof(T)>(
        static_cast<const std::byte*>(from), static_cast<std::byte*>(to), std::move(axes));
  });
}

Tensor transposed_copy(const TensorType& type, const void* from, std::span<const int64_t> perm) {
  Tensor moved = Tensor::unset({type.dtype, transposed_shape(type.shape, perm)});
  transpose_elements(type, from, perm, moved.data());
  return moved;
}

}  // namespace ridge
