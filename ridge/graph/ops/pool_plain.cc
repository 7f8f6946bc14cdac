// The plain forms of pools: reductions over what is gathered of each window, and of the windows
// that see each pixel.
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/pool.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/graph/ops/windows.h"

namespace ridge {
namespace {

// Both dimensions of a pool from an image x to an image y.
struct PoolWindows {
  PoolWindows(const PoolFields& pool, const Shape& x, const Shape& y)
      : rows{pool.window, 0, x[1], pool.kernel[0], y[1]},
        columns{pool.window, 1, x[2], pool.kernel[1], y[2]} {}

  // A window that reaches over the edge sees the pixels there twice, which is no matter to a
  // maximum.
  Value pixels(Value x) const {
    return gather_places(x, rows.pixels_of_windows(true), columns.pixels_of_windows(true));
  }
  // x (N, OH, OW, C) of the windows that see each pixel: (N, H * W, windows, C).
  Value windows(Value x) const {
    return gather_places(x, rows.windows_of_pixels(), columns.windows_of_pixels());
  }

  WindowDimension rows, columns;
};

// In what sums of it are kept in: 16 bits are rounded once, at the end.
Value in_sums(Value x) { return size_of(x.dtype()) == 2 ? cast(x, DType::kF32) : x; }

// One over the number of elements that each window counts, as (1, OH, OW, 1).
Value shares(Graph& graph, DType dtype, const PoolWindows& pool, bool count_padding) {
  const auto counts = [&](const WindowDimension& along) {
    std::vector<double> counts(static_cast<size_t>(along.windows), static_cast<double>(along.size));
    if (count_padding) return counts;
    const Places seen = along.pixels_of_windows();
    for (size_t i = 0; i < seen.at.size(); ++i)
      if (seen.at[i] < 0) counts[i / static_cast<size_t>(along.size)] -= 1;
    return counts;
  };
  std::vector<double> all;
  for (const double row : counts(pool.rows))
    for (const double column : counts(pool.columns)) all.push_back(1 / (row * column));
  return constant(graph, {dtype, {1, pool.rows.windows, pool.columns.windows, 1}}, all);
}

}  // namespace

std::vector<Value> MaxPool2d::expand(std::span<const Value> inputs) const {
  const TensorType y = pool.output(inputs[0].type(), "max_pool2d");
  const Value seen = PoolWindows(pool, inputs[0].shape(), y.shape).pixels(inputs[0]);
  return {reshape(reduce_max(seen, {2}), y.shape)};
}

// The pixel that each window takes is known by its number: a pixel gets what those windows give
// that have taken its own.
std::vector<Value> MaxPool2dGrad::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0], dy = inputs[1];
  const PoolWindows windows(pool, x.shape(), dy.shape());
  Graph& graph = x.graph();
  const Value numbers = place_numbers(graph,
                                      windows.rows.pixels_of_windows(true),
                                      windows.columns.pixels_of_windows(true),
                                      x.dim(2),
                                      0);
  const int64_t elements = numbers.dim(1);
  const Value element = argmax(windows.pixels(x), 2);  // (N, windows, C)
  const Value place = iota(graph, element.type(), 1) * static_cast<double>(elements) + element;
  const Value taken = gather(reshape(numbers, {-1}), place);
  const Value given = windows.windows(dy);
  const Value takers = windows.windows(reshape(taken, dy.shape()));
  const Value own = iota(graph, takers.type(), 1);
  const Value dx = reduce_sum(where(eq(takers, own), given, constant_like(given, 0.0)), {2});
  return {reshape(dx, x.shape())};
}

std::vector<Value> AvgPool2d::expand(std::span<const Value> inputs) const {
  const Value x = in_sums(inputs[0]);
  const Shape y = pool.output(x.type(), "avg_pool2d").shape;
  const PoolWindows windows(pool, x.shape(), y);
  const Value seen =
      gather_places(x, windows.rows.pixels_of_windows(), windows.columns.pixels_of_windows());
  const Value share = shares(x.graph(), x.dtype(), windows, count_padding);
  const Value mean = reshape(reduce_sum(seen, {2}), y) * broadcast(share, y);
  return {cast(mean, inputs[0].dtype())};
}

std::vector<Value> AvgPool2dGrad::expand(std::span<const Value> inputs) const {
  const Value dy = in_sums(inputs[0]);
  const Shape x{dy.dim(0), size[0], size[1], dy.dim(3)};
  const PoolWindows windows(pool, x, dy.shape());
  const Value share = shares(dy.graph(), dy.dtype(), windows, count_padding);
  const Value given = windows.windows(dy * broadcast(share, dy.shape()));
  return {cast(reshape(reduce_sum(given, {2}), x), inputs[0].dtype())};
}

}  // namespace ridge
