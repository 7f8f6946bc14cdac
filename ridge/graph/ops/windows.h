// What windows over an image see, gathered by plain ops: products and reductions do the rest of a
// convolution or a pool where a device has no kernel for it.
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
  int64_t length;   ///< Of the image.
  int64_t size;     ///< Elements of a window.
  int64_t windows;  ///< Positions of it.

  /// Of each window its elements; those in the padding see nothing, or, `clamped`, the nearest
  /// pixel.
  Places pixels_of_windows(bool clamped = false) const;
  /// Of each pixel, for each element of a window, the window that sees it with that.
  Places windows_by_element() const;
  /// Of each pixel the windows that see it, and nothing behind them up to the largest number.
  Places windows_of_pixels() const;
};

/// The number of each place in an image of that width, row by row: (rows.count * columns.count,
/// rows.size * columns.size) of i64. `nothing`: where there is none.
Value place_numbers(
    Graph& graph, const Places& rows, const Places& columns, int64_t width, int64_t nothing);

/// x (N, H, W, C) at those places: (N, rows.count * columns.count, rows.size * columns.size, C),
/// and zeros where there is none.
Value gather_places(Value x, const Places& rows, const Places& columns);

}  // namespace ridge
