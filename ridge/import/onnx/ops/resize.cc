// Resizing: along each axis, every element of the result is a weighted sum of a few of the input.
#include <algorithm>
#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

constexpr int64_t kMostTaps = 64;

struct Options {
  std::string mode = "nearest";
  std::string coordinates = "half_pixel";
  std::string nearest = "round_prefer_floor";
  double cubic = -0.75;
  bool excludes_outside = false;
  bool antialiases = false;
  double outside = 0.0;  // the value of what lies outside of the crop
};

// How one axis is resized.
struct AxisSize {
  int64_t from = 0, to = 0;
  double scale = 1.0;
  double resized = 0.0;  ///< The size before it is rounded to `to`.
  double crop_start = 0.0, crop_end = 1.0;
};

// For each element of the result and each tap: an element of the input and its weight.
struct Taps {
  std::vector<std::vector<int64_t>> indices;  // by tap
  std::vector<std::vector<double>> weights;
  std::vector<int64_t> is_inside;
};

// The place in the input of element i of the result.
double original_place(const Options& options, const AxisSize& axis, int64_t i) {
  const auto place = static_cast<double>(i);
  const auto from = static_cast<double>(axis.from);
  const double to = axis.resized;
  const std::string& mode = options.coordinates;
  if (mode == "asymmetric") return place / axis.scale;
  if (mode == "align_corners") return axis.to == 1 ? 0.0 : place * (from - 1) / (to - 1);
  if (mode == "pytorch_half_pixel" && axis.to == 1) return 0.0;
  if (mode == "tf_half_pixel_for_nn") return (place + 0.5) / axis.scale;
  if (mode == "tf_crop_and_resize") {
    const double start = axis.crop_start * (from - 1), end = axis.crop_end * (from - 1);
    return axis.to == 1 ? 0.5 * (start + end) : start + place * (end - start) / (to - 1);
  }
  double shift = 0.0;
  if (mode == "half_pixel_symmetric")
    shift = from / 2 * (1 - static_cast<double>(axis.to) / to);
  else
    check(mode == "half_pixel" || mode == "pytorch_half_pixel",
          "coordinates '{}' are not known",
          mode);
  return shift + (place + 0.5) / axis.scale - 0.5;
}

double nearest_place(const std::string& rule, double place) {
  if (rule == "floor") return std::floor(place);
  if (rule == "ceil") return std::ceil(place);
  if (rule == "round_prefer_ceil") return std::floor(place + 0.5);
  check(rule == "round_prefer_floor", "nearest_mode '{}' is not known", rule);
  return std::ceil(place - 0.5);
}

// The weight of an element at that distance.
double weight_at(const Options& options, double distance) {
  const double d = std::abs(distance);
  if (options.mode == "linear") return std::max(0.0, 1.0 - d);
  // Keys, "Cubic convolution interpolation for digital image processing", 1981.
  const double a = options.cubic;
  if (d <= 1.0) return ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0;
  if (d < 2.0) return ((a * d - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a;
  return 0.0;
}

Taps taps_of(const Options& options, const AxisSize& axis) {
  const bool is_nearest = options.mode == "nearest";
  const double shrink = options.antialiases && !is_nearest ? std::min(axis.scale, 1.0) : 1.0;
  const double half = options.mode == "cubic" ? 2.0 : 1.0;
  check(half / shrink < static_cast<double>(kMostTaps), "it shrinks by {}", shrink);
  const auto first = static_cast<int64_t>(std::floor(-half / shrink)) + 1;
  const int64_t count = is_nearest ? 1 : 2 - 2 * first;
  check(count <= 4 * kMostIndices / axis.to, "it makes {} elements of {}", axis.to, axis.from);
  Taps taps;
  taps.indices.resize(static_cast<size_t>(count));
  taps.weights.resize(static_cast<size_t>(count));
  for (int64_t i = 0; i < axis.to; ++i) {
    const double place = original_place(options, axis, i);
    check(std::abs(place) < 1e15, "it takes an element from {}", place);
    taps.is_inside.push_back(place >= 0.0 && place <= static_cast<double>(axis.from - 1) ? 1 : 0);
    const double base = is_nearest ? nearest_place(options.nearest, place) : std::ceil(place) - 1;
    std::vector<double> weights;
    double sum = 0.0;
    for (int64_t tap = 0; tap < count; ++tap) {
      const int64_t at = static_cast<int64_t>(base) + (is_nearest ? 0 : first + tap);
      const bool is_outside = at < 0 || at >= axis.from;
      double weight =
          is_nearest ? 1.0 : weight_at(options, (static_cast<double>(at) - place) * shrink);
      if (is_outside && options.excludes_outside && !is_nearest) weight = 0.0;
      taps.indices[static_cast<size_t>(tap)].push_back(std::clamp<int64_t>(at, 0, axis.from - 1));
      weights.push_back(weight);
      sum += weight;
    }
    const bool is_normalized = !is_nearest && (options.antialiases || options.excludes_outside);
    for (int64_t tap = 0; tap < count; ++tap)
      taps.weights[static_cast<size_t>(tap)].push_back(is_normalized
                                                           ? weights[static_cast<size_t>(tap)] / sum
                                                           : weights[static_cast<size_t>(tap)]);
  }
  return taps;
}

// Numbers along `axis`, to be broadcast.
Value along(NodeContext& n,
            const std::vector<double>& numbers,
            DType dtype,
            int64_t rank,
            int64_t axis,
            std::string_view what) {
  Shape shape(static_cast<size_t>(rank), 1);
  shape[static_cast<size_t>(axis)] = std::ssize(numbers);
  Tensor tensor({dtype, shape});
  for (int64_t i = 0; i < tensor.elements(); ++i) tensor.set(i, numbers[static_cast<size_t>(i)]);
  return n.place(Known(std::move(tensor)), what);
}

Value resized(NodeContext& n, Value x, int64_t axis, const Options& options, const AxisSize& size) {
  const Taps taps = taps_of(options, size);
  Value result;
  for (size_t tap = 0; tap < taps.indices.size(); ++tap) {
    const std::vector<double>& weights = taps.weights[tap];
    if (std::all_of(weights.begin(), weights.end(), [](double w) { return w == 0.0; })) continue;
    Value part = take(n, x, taps.indices[tap], axis);
    if (std::any_of(weights.begin(), weights.end(), [](double w) { return w != 1.0; }))
      part = part *
             along(n, weights, x.dtype(), x.rank(), axis, fmt::format("weights{}{}", axis, tap));
    result = result ? result + part : part;
  }
  check(static_cast<bool>(result), "all of its weights are 0");
  const bool is_all_inside =
      std::all_of(taps.is_inside.begin(), taps.is_inside.end(), [](int64_t in) { return in != 0; });
  if (options.coordinates != "tf_crop_and_resize" || is_all_inside) return result;
  const Value inside = along(n,
                             {taps.is_inside.begin(), taps.is_inside.end()},
                             DType::kBool,
                             x.rank(),
                             axis,
                             fmt::format("inside{}", axis));
  return where(inside, result, constant_like(result, options.outside));
}

void give_resized(NodeContext& n, const Options& options, const std::vector<AxisSize>& sizes) {
  check(options.mode == "nearest" || is_float(n.dtype(0)),
        "{} of mode '{}'",
        name_of(n.dtype(0)),
        options.mode);
  const bool as_image = n.is_image(0);
  Value x = as_image ? n.image(0) : n.value(0);
  for (size_t i = 0; i < sizes.size(); ++i) {
    const AxisSize& size = sizes[i];
    const bool is_same =
        size.from == size.to && size.scale == 1.0 && options.coordinates != "tf_crop_and_resize";
    if (is_same) continue;
    check(size.to >= 1 && size.to <= kMostIndices && size.scale > 0.0,
          "axis {} gets size {}",
          i,
          size.to);
    x = resized(n, x, as_image ? kImageAxis[i] : static_cast<int64_t>(i), options, size);
  }
  as_image ? n.give_image(0, x) : n.give(x);
}

int64_t scaled(int64_t size, double scale) {
  const double to = std::floor(static_cast<double>(size) * scale);
  check(to >= 0.0 && to <= static_cast<double>(kMostIndices), "an axis is scaled by {}", scale);
  return static_cast<int64_t>(to);
}

void scale_axis(AxisSize& axis, double scale) {
  axis.scale = scale;
  axis.to = scaled(axis.from, scale);
  axis.resized = static_cast<double>(axis.from) * scale;
}

std::vector<AxisSize> unchanged(const Shape& shape) {
  std::vector<AxisSize> sizes;
  for (const int64_t size : shape) sizes.push_back({size, size, 1.0, static_cast<double>(size)});
  return sizes;
}

std::vector<double> known_numbers(const NodeContext& n, size_t input, std::string_view what) {
  const Known* known = n.known(input);
  check(known != nullptr, "its {} is data of a run", what);
  check(known->elements() <= 2 * kMaxRank, "its {} has {} numbers", what, known->elements());
  std::vector<double> numbers;
  for (int64_t i = 0; i < known->elements(); ++i) numbers.push_back(known->at(i));
  return numbers;
}

void upsample(NodeContext& n) {
  Options options{
      .mode = n.text("mode", "nearest"), .coordinates = "asymmetric", .nearest = "floor"};
  check(options.mode == "nearest" || options.mode == "linear", "mode '{}'", options.mode);
  std::vector<double> scales;
  if (const Attribute* given = n.find("scales"))
    scales.assign(given->numbers.begin(), given->numbers.end());
  else if (n.has(1))
    scales = known_numbers(n, 1, "scales");
  check(std::ssize(scales) == n.rank(0), "it scales {} of {} axes", scales.size(), n.rank(0));
  std::vector<AxisSize> sizes = unchanged(n.shape(0));
  for (size_t i = 0; i < sizes.size(); ++i) {
    scale_axis(sizes[i], scales[i]);
  }
  give_resized(n, options, sizes);
}

// The sizes that input 3 asks for; a policy keeps the ratio of the axes.
void take_sizes(NodeContext& n, std::vector<AxisSize>& sizes, const std::vector<int64_t>& axes) {
  const std::vector<int64_t> asked = n.integers(3, "sizes");
  check(asked.size() == axes.size(), "it sizes {} of {} axes", asked.size(), axes.size());
  const std::string policy = n.text("keep_aspect_ratio_policy", "stretch");
  double common = policy == "not_larger" ? 1e30 : 0.0;
  for (size_t i = 0; i < axes.size(); ++i) {
    AxisSize& size = sizes[static_cast<size_t>(axes[i])];
    size.to = asked[i];
    size.resized = static_cast<double>(size.to);
    size.scale = static_cast<double>(size.to) / static_cast<double>(size.from);
    common = policy == "not_larger" ? std::min(common, size.scale) : std::max(common, size.scale);
  }
  if (policy == "stretch") return;
  check(policy == "not_larger" || policy == "not_smaller", "policy '{}' is not known", policy);
  for (const int64_t axis : axes) {
    AxisSize& size = sizes[static_cast<size_t>(axis)];
    size.scale = common;
    size.to = scaled(1, static_cast<double>(size.from) * common + 0.5);
    size.resized = static_cast<double>(size.to);
  }
}

void resize(NodeContext& n) {
  const bool is_old = n.opset() < 11;  // its inputs are x and scales
  Options options{
      .mode = n.text("mode", "nearest"),
      .coordinates = n.text("coordinate_transformation_mode", is_old ? "asymmetric" : "half_pixel"),
      .nearest = n.text("nearest_mode", is_old ? "floor" : "round_prefer_floor"),
      .cubic = n.number("cubic_coeff_a", -0.75),
      .excludes_outside = n.integer("exclude_outside", 0) != 0,
      .antialiases = n.integer("antialias", 0) != 0,
      .outside = n.number("extrapolation_value", 0.0)};
  check(options.mode == "nearest" || options.mode == "linear" || options.mode == "cubic",
        "mode '{}' is not known",
        options.mode);
  std::vector<AxisSize> sizes = unchanged(n.shape(0));
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < n.rank(0); ++i) axes.push_back(i);
  axes = n.list("axes", axes);
  normalized_axes(axes, n.rank(0));
  for (int64_t& axis : axes) axis = normalize_axis(axis, n.rank(0), "axes");
  const size_t scales = is_old ? 1 : 2;
  if (n.has(3)) {
    take_sizes(n, sizes, axes);
  } else {
    const std::vector<double> given = known_numbers(n, scales, "scales");
    check(given.size() == axes.size(), "it scales {} of {} axes", given.size(), axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      AxisSize& size = sizes[static_cast<size_t>(axes[i])];
      scale_axis(size, given[i]);
    }
  }
  if (options.coordinates == "tf_crop_and_resize") {
    const std::vector<double> crop = known_numbers(n, 1, "crop");
    check(crop.size() == 2 * axes.size(), "it crops {} of {} axes", crop.size() / 2, axes.size());
    for (size_t i = 0; i < axes.size(); ++i) {
      sizes[static_cast<size_t>(axes[i])].crop_start = crop[i];
      sizes[static_cast<size_t>(axes[i])].crop_end = crop[i + axes.size()];
    }
  }
  give_resized(n, options, sizes);
}

constexpr OpRow kResizeOps[] = {
    {"Resize", resize, 10},
    {"Upsample", upsample, 7, 9},
};

}  // namespace

std::span<const OpRow> resize_ops() { return kResizeOps; }

}  // namespace ridge::onnx
