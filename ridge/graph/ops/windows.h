// Gathers the pixels that windows over an image see, by plain ops: products and reductions do the
// rest of a convolution or a pool where a device has no kernel for it.
#pragma once

#include <vector>

#include "ridge/graph/ops/conv.h"

namespace ridge {

/// For each of `count` positions along a dimension, `size` places along the same dimension of
/// another image, in order; -1: none.
struct Places {
  int64_t count = 0, size = 0;
  std::vector<int64_t> at;
};

/// A dimension of an image under windows: 0 is the height, 1 the width.
struct WindowDimension {
  const WindowFields& window;
  int dimension;
  int64_t length;   ///< Pixels of the image along the dimension.
  int64_t size;     ///< Elements of a window.
  int64_t windows;  ///< Positions of it.

  /// For each window, the pixels of its elements; elements in the padding have none (-1) or, with
  /// `clamped`, the nearest pixel.
  Places pixels_of_windows(bool clamped = false) const;
  /// For each pixel and each element of a window, the window that sees the pixel with that element.
  Places windows_by_element() const;
  /// For each pixel, the windows that see it, filled up with -1 to the largest number of them.
  Places windows_of_pixels() const;
};

/// The number of each place in an image of that width, row by row: (rows.count * columns.count,
/// rows.size * columns.size) of i64. `nothing`: where there is none.
Value place_numbers(
    Graph& graph, const Places& rows, const Places& columns, int64_t width, int64_t nothing);

/// x (N, H, W, C) at those places: (N, rows.count * columns.count, rows.size * columns.size, C),
/// and `nothing`, a scalar of x's dtype, where there is none; null: zeros.
Value gather_places(Value x, const Places& rows, const Places& columns, Value nothing = {});

}  // namespace ridge
