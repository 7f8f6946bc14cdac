// Images sampled at places that a run computes.
#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/functions.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

struct Options {
  std::string mode, padding;
  bool aligns = false;
};

// An element of an axis and its weight, for each place (N, P).
struct Tap {
  Value index;   // i64, in range
  Value weight;  // null: 1
};

Value reflected(Value x, double low, double high) {
  const double range = high - low;
  if (range <= 0.0) return constant_like(x, low);
  const Value shifted = x - low;
  const Value period = constant_like(x, 2.0 * range);
  const Value rest = shifted - floor(shifted / period) * period;
  return where(gt(rest, constant_like(x, range)), 2.0 * range - rest, rest) + low;
}

// Places -1 to 1 as places of an axis of that size.
Value axis_place(Value grid, int64_t size, const Options& options) {
  const auto length = static_cast<double>(size);
  const double low = options.aligns ? 0.0 : -0.5;
  const double high = options.aligns ? length - 1.0 : length - 0.5;
  Value x =
      options.aligns ? (grid + 1.0) / 2.0 * (length - 1.0) : ((grid + 1.0) * length - 1.0) / 2.0;
  if (options.mode == "nearest") x = round_half_even(x);
  if (options.padding == "border") {
    // A place up to half an element outside stays, as ONNX's reference has it: of the elements
    // around it each is the nearest. ONNX Runtime 1.31 moves it, too, where another axis is
    // outside.
    const Value inside = logical_and(ge(x, constant_like(x, low)), le(x, constant_like(x, high)));
    return where(
        inside, x, minimum(maximum(x, constant_like(x, 0.0)), constant_like(x, length - 1.0)));
  }
  return options.padding == "reflection" ? reflected(x, low, high) : x;
}

Tap tap_at(Value index, Value weight, int64_t size, const Options& options) {
  const auto length = static_cast<double>(size);
  const Value zero = constant_like(index, 0.0), last = constant_like(index, length - 1.0);
  if (options.padding == "zeros") {
    const Value inside = logical_and(ge(index, zero), le(index, last));
    const Value one = cast(inside, weight ? weight.dtype() : DType::kF32);
    weight = weight ? weight * one : one;
  } else if (options.padding == "reflection") {
    const double period = options.aligns ? std::max(2.0 * (length - 1.0), 1.0) : 2.0 * length;
    const Value rest = floored_remainder(index, constant_like(index, period));
    const double end = options.aligns ? period : period - 1.0;
    index = where(gt(rest, last), end - rest, rest);
  }
  return {minimum(maximum(index, zero), last), weight};
}

// Weights of the four elements around a place, by its distance from the second (Keys, 1981).
Value cubic_weight(Value distance, int64_t tap) {
  constexpr double kA = -0.75;
  const Value d = abs(distance - static_cast<double>(tap - 1));
  if (tap == 1 || tap == 2) return (d * (kA + 2.0) - (kA + 3.0)) * d * d + 1.0;
  return ((d * kA - 5.0 * kA) * d + 8.0 * kA) * d - 4.0 * kA;
}

std::vector<Tap> taps_of(Value x, int64_t size, const Options& options) {
  const Value base = cast(floor(x), DType::kI64);
  if (options.mode == "nearest") return {tap_at(cast(x, DType::kI64), {}, size, options)};
  const Value rest = x - floor(x);
  if (options.mode == "linear")
    return {tap_at(base, 1.0 - rest, size, options), tap_at(base + 1.0, rest, size, options)};
  std::vector<Tap> taps;
  for (int64_t tap = 0; tap < 4; ++tap)
    taps.push_back(
        tap_at(base + static_cast<double>(tap - 1), cubic_weight(rest, tap), size, options));
  return taps;
}

Options options_of(const NodeContext& n) {
  Options options{n.text("mode", "linear"),
                  n.text("padding_mode", "zeros"),
                  n.integer("align_corners", 0) != 0};
  if (options.mode == "bilinear") options.mode = "linear";
  if (options.mode == "bicubic") options.mode = "cubic";
  check(options.mode == "linear" || options.mode == "nearest" || options.mode == "cubic",
        "mode '{}' is not known",
        options.mode);
  check(
      options.padding == "zeros" || options.padding == "border" || options.padding == "reflection",
      "padding_mode '{}' is not known",
      options.padding);
  return options;
}

// x (N, C, ...) and grid (N, ..., D), whose last axis names the last axis of x first.
void grid_sample(NodeContext& n) {
  const int64_t rank = n.rank(0), axes = rank - 2;
  check((rank == 4 || rank == 5) && n.rank(1) == rank && n.shape(1).back() == axes,
        "its inputs are {} and {}",
        to_string(n.shape(0)),
        to_string(n.shape(1)));
  const Options options = options_of(n);
  const Value pixels = rank == 4 ? n.image(0) : transpose(n.value(0), {0, 2, 3, 4, 1});
  const int64_t batch = pixels.dim(0), channels = pixels.dim(rank - 1);
  const Value rows = reshape(pixels, {-1, channels});
  const Value grid = reshape(n.value(1), {batch, -1, axes});
  const Shape places{batch, grid.dim(1)};
  // Combinations of one tap an axis: the number of the pixel, and the product of the weights.
  std::vector<Tap> combined{{iota(n.graph(), {DType::kI64, places}, 0), {}}};
  for (int64_t axis = 0; axis < axes; ++axis) {
    const int64_t size = pixels.dim(axis + 1), column = axes - 1 - axis;
    const Value along = reshape(slice(grid, 2, column, column + 1), places);
    std::vector<Tap> next;
    for (const Tap& tap : taps_of(axis_place(along, size, options), size, options))
      for (const Tap& before : combined) {
        const Value number = before.index * static_cast<double>(size) + tap.index;
        const Value weight = !before.weight ? tap.weight
                             : tap.weight   ? before.weight * tap.weight
                                            : before.weight;
        next.push_back({number, weight});
      }
    combined = std::move(next);
  }
  Value sum;
  for (const Tap& tap : combined) {
    Value part = gather(rows, tap.index, 0);  // (N, P, C)
    if (tap.weight)
      part = part * reshape(cast(tap.weight, part.dtype()), {places[0], places[1], 1});
    sum = sum ? sum + part : part;
  }
  Shape shape(n.shape(1).begin(), n.shape(1).end() - 1);
  shape.push_back(channels);
  const Value result = reshape(sum, shape);
  rank == 4 ? n.give_image(0, result) : n.give(transpose(result, {0, 4, 1, 2, 3}));
}

// The places of an axis of that size, -1 to 1.
std::vector<double> original_places(int64_t size, bool aligns) {
  std::vector<double> places;
  for (int64_t i = 0; i < size; ++i) {
    const auto at = static_cast<double>(i), length = static_cast<double>(size);
    places.push_back(aligns ? (size == 1 ? -1.0 : 2.0 * at / (length - 1.0) - 1.0)
                            : (2.0 * at + 1.0) / length - 1.0);
  }
  return places;
}

// theta (N, D, D + 1) and the size (N, C, ...): the grid of an affine map, (N, ..., D).
void affine_grid(NodeContext& n) {
  const std::vector<int64_t> size = n.integers(1, "size");
  const int64_t axes = std::ssize(size) - 2;
  check((axes == 2 || axes == 3) && n.shape(0) == Shape{size[0], axes, axes + 1},
        "its inputs are {} and a size of {}",
        to_string(n.shape(0)),
        size.size());
  const Shape spatial(size.begin() + 2, size.end());
  const int64_t places = checked_elements(n.dtype(0), spatial, "size");
  check(places >= 1 && places <= kMostIndices, "it has {} places", places);
  const bool aligns = n.integer("align_corners", 0) != 0;
  Tensor original({n.dtype(0), {places, axes + 1}});
  std::vector<std::vector<double>> by_axis;
  for (const int64_t each : spatial) by_axis.push_back(original_places(each, aligns));
  for (int64_t place = 0; place < places; ++place) {
    int64_t rest = place;
    for (int64_t axis = axes; axis-- > 0;) {
      const auto at = static_cast<size_t>(axis);
      original.set(place * (axes + 1) + axes - 1 - axis,
                   by_axis[at][static_cast<size_t>(rest % spatial[at])]);
      rest /= spatial[at];
    }
    original.set(place * (axes + 1) + axes, 1.0);
  }
  Shape shape{size[0]};
  shape.insert(shape.end(), spatial.begin(), spatial.end());
  shape.push_back(axes);
  const Value grid = n.place(Known(std::move(original)), "grid");
  const Value repeated = broadcast(grid, {size[0], places, axes + 1});
  n.give(reshape(matmul(repeated, n.value(0), false, true), shape));
}

// Axes cut, or filled with zeros, at both ends alike.
void center_crop_pad(NodeContext& n) {
  const std::vector<int64_t> asked = n.integers(1, "shape");
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  axes = n.list("axes", axes);
  check(normalized_axes(axes, n.rank(0)).size() == asked.size(),
        "it asks for {} of {} axes",
        asked.size(),
        axes.size());
  Value x = n.value(0);
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t axis = normalize_axis(axes[i], x.rank(), "axes"), size = x.dim(axis);
    check(asked[i] >= 1 && asked[i] <= kMostIndices, "an axis gets size {}", asked[i]);
    if (asked[i] < size) {
      const int64_t first = (size - asked[i]) / 2;
      x = slice(x, axis, first, first + asked[i]);
    } else if (asked[i] > size) {
      std::vector<int64_t> low(static_cast<size_t>(x.rank()), 0), high = low;
      low[static_cast<size_t>(axis)] = (asked[i] - size) / 2;
      high[static_cast<size_t>(axis)] = asked[i] - size - (asked[i] - size) / 2;
      x = pad(x, low, high);
    }
  }
  n.give(x);
}

constexpr OpRow kSamplingOps[] = {
    {"AffineGrid", affine_grid, 20},
    {"CenterCropPad", center_crop_pad, 18},
    {"GridSample", grid_sample, 16},
};

}  // namespace

std::span<const OpRow> sampling_ops() { return kSamplingOps; }

}  // namespace ridge::onnx
