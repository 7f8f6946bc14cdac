#include "ridge/graph/ops/windows.h"

#include <algorithm>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

Places WindowDimension::pixels_of_windows(bool clamped) const {
  const auto d = static_cast<size_t>(dimension);
  Places found{windows, size, {}};
  for (int64_t i = 0; i < windows; ++i)
    for (int64_t k = 0; k < size; ++k) {
      const int64_t at = i * window.stride[d] - window.padding[d] + k * window.dilation[d];
      const bool is_inside = at >= 0 && at < length;
      found.at.push_back(is_inside ? at : clamped ? std::clamp<int64_t>(at, 0, length - 1) : -1);
    }
  return found;
}

Places WindowDimension::windows_by_element() const {
  const auto d = static_cast<size_t>(dimension);
  Places found{length, size, {}};
  for (int64_t pixel = 0; pixel < length; ++pixel)
    for (int64_t k = 0; k < size; ++k) {
      const int64_t begin = pixel + window.padding[d] - k * window.dilation[d];
      const bool is_seen =
          begin >= 0 && begin % window.stride[d] == 0 && begin / window.stride[d] < windows;
      found.at.push_back(is_seen ? begin / window.stride[d] : -1);
    }
  return found;
}

Places WindowDimension::windows_of_pixels() const {
  const Places all = windows_by_element();
  std::vector<std::vector<int64_t>> seen(static_cast<size_t>(length));
  Places found{length, 1, {}};
  for (size_t pixel = 0; pixel < seen.size(); ++pixel) {
    const auto first = all.at.begin() + static_cast<int64_t>(pixel) * size;
    std::copy_if(
        first, first + size, std::back_inserter(seen[pixel]), [](int64_t i) { return i >= 0; });
    std::ranges::sort(seen[pixel]);
    found.size = std::max(found.size, std::ssize(seen[pixel]));
  }
  for (std::vector<int64_t>& each : seen) {
    each.resize(static_cast<size_t>(found.size), -1);
    found.at.insert(found.at.end(), each.begin(), each.end());
  }
  return found;
}

namespace {

bool has_nothing(const Places& places) {
  return std::ranges::find(places.at, -1) != places.at.end();
}

}  // namespace

Value place_numbers(
    Graph& graph, const Places& rows, const Places& columns, int64_t width, int64_t nothing) {
  const Shape all{rows.count, columns.count, rows.size, columns.size};
  const auto table = [&](const Places& places, int64_t scale, const Shape& shape) {
    std::vector<double> numbers;
    for (const int64_t at : places.at)
      numbers.push_back(static_cast<double>(at < 0 ? at : at * scale));
    return broadcast(constant(graph, {DType::kI64, shape}, numbers), all);
  };
  const Value row = table(rows, width, {rows.count, 1, rows.size, 1}),
              column = table(columns, 1, {1, columns.count, 1, columns.size});
  Value number = row + column;
  if (has_nothing(rows) || has_nothing(columns)) {
    const Value zero = constant_like(number, 0.0);
    number = where(logical_and(ge(row, zero), ge(column, zero)),
                   number,
                   constant_like(number, static_cast<double>(nothing)));
  }
  return reshape(number, {rows.count * columns.count, rows.size * columns.size});
}

Value gather_places(Value x, const Places& rows, const Places& columns, Value nothing) {
  const int64_t pixels = x.dim(1) * x.dim(2);
  Value flat = reshape(x, {x.dim(0), pixels, x.dim(3)});
  if (has_nothing(rows) || has_nothing(columns))
    flat = nothing ? concat({flat, broadcast(nothing, {x.dim(0), 1, x.dim(3)})}, 1)
                   : pad(flat, {0, 0, 0}, {0, 1, 0});
  return gather(flat, place_numbers(x.graph(), rows, columns, x.dim(2), pixels), 1);
}

}  // namespace ridge
