// Operators that make values of nothing but attributes, shapes and a few numbers; and padding.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"
#include "ridge/import/builders/indexing.h"
#include "ridge/import/onnx/op_table.h"
#include "ridge/import/onnx/ops/axes.h"

namespace ridge::onnx {
namespace {

Known floats_of(const std::vector<float>& numbers) {
  if (numbers.empty()) return Known::empty(DType::kF32, {0});
  Tensor tensor({DType::kF32, {std::ssize(numbers)}});
  std::copy(numbers.begin(), numbers.end(), tensor.span<float>().begin());
  return Known(std::move(tensor));
}

void constant_of(NodeContext& n) {
  if (const Attribute* value = n.find("value")) {
    check(value->tensor != nullptr, "its value is no tensor");
    return n.give(n.import().read(*value->tensor));
  }
  if (n.has_attribute("value_int")) return n.give(Known::scalar(n.integer("value_int")));
  if (n.has_attribute("value_ints")) return n.give(Known::of(n.list("value_ints")));
  if (const Attribute* value = n.find("value_float"))
    return n.give(floats_of({value->number}).reshaped({}));
  if (const Attribute* value = n.find("value_floats")) return n.give(floats_of(value->numbers));
  throw UserError("its value is of a kind that is not supported");
}

void constant_of_shape(NodeContext& n) {
  const Shape shape = n.integers(0, "shape");
  DType dtype = DType::kF32;
  double value = 0.0;
  if (const Attribute* given = n.find("value")) {
    check(given->tensor != nullptr, "its value is no tensor");
    const Known known = n.import().read(*given->tensor);
    check(known.elements() == 1, "its value has {} elements", known.elements());
    dtype = known.dtype();
    value = known.at(0);
  }
  if (checked_elements(dtype, shape, "shape") == 0) return n.give(Known::empty(dtype, shape));
  n.give(constant(n.graph(), {dtype, shape}, value));
}

void shape_of(NodeContext& n) {
  const int64_t rank = n.rank(0);
  const auto place = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  const int64_t first = place(n.integer("start", 0));
  const int64_t last = std::max(first, place(n.integer("end", rank)));
  const Shape& shape = n.shape(0);
  n.give(Known::of({shape.begin() + first, shape.begin() + last}));
}

void size_of_input(NodeContext& n) {
  n.give(Known::scalar(checked_elements(n.dtype(0), n.shape(0), "size")));
}

void range(NodeContext& n) {
  const double start = n.scalar(0, "start"), limit = n.scalar(1, "limit"),
               delta = n.scalar(2, "delta");
  const double count = std::ceil((limit - start) / delta);
  check(delta != 0.0 && count <= static_cast<double>(kMostIndices),
        "it goes from {} to {} by {}",
        start,
        limit,
        delta);
  if (!(count > 0.0)) return n.give(Known::empty(n.dtype(0), {0}));
  Tensor numbers({n.dtype(0), {static_cast<int64_t>(count)}});
  for (int64_t i = 0; i < numbers.elements(); ++i)
    numbers.set(i, start + static_cast<double>(i) * delta);
  n.give(Known(std::move(numbers)));
}

// ---- windows for spectra: a sum of cosines ----

void give_window(NodeContext& n, const std::vector<double>& factors) {
  const int64_t size = n.whole(0, "size");
  const int64_t data_type = n.integer("output_datatype", 1);
  const auto dtype = dtype_of_onnx(data_type);
  check(dtype.has_value(), "dtype {} is not supported", onnx_type_name(data_type));
  check(size >= 1 && size <= kMostIndices, "its size is {}", size);
  const bool is_periodic = n.integer("periodic", 1) != 0;
  const auto period = static_cast<double>(is_periodic ? size : std::max<int64_t>(size - 1, 1));
  Tensor window({*dtype, {size}});
  for (int64_t i = 0; i < size; ++i) {
    double sum = 0.0;
    for (size_t k = 0; k < factors.size(); ++k)
      sum += factors[k] * std::cos(2.0 * std::numbers::pi * static_cast<double>(k) *
                                   static_cast<double>(i) / period);
    window.set(i, sum);
  }
  n.give(Known(std::move(window)));
}

void hann_window(NodeContext& n) { give_window(n, {0.5, -0.5}); }
void hamming_window(NodeContext& n) { give_window(n, {25.0 / 46.0, -21.0 / 46.0}); }
void blackman_window(NodeContext& n) { give_window(n, {0.42, -0.5, 0.08}); }

// True where column - row >= k; the last two dimensions of `shape` are rows and columns.
Value not_below(Graph& graph, const Shape& shape, int64_t k) {
  const TensorType type{DType::kI64, {shape.end() - 2, shape.end()}};
  const Value row = iota(graph, type, 0), column = iota(graph, type, 1);
  constexpr int64_t kFar = int64_t{1} << 50;
  const auto diagonal = static_cast<double>(std::clamp(k, -kFar, kFar));
  return ge(column - row, constant(graph, type, diagonal));
}

void eye_like(NodeContext& n) {
  check(n.rank(0) == 2, "its input has {} dimensions", n.rank(0));
  DType dtype = n.dtype(0);
  if (n.has_attribute("dtype")) {
    const auto asked = dtype_of_onnx(n.integer("dtype"));
    check(asked.has_value(), "dtype {} is not supported", onnx_type_name(n.integer("dtype")));
    dtype = *asked;
  }
  const int64_t k = n.integer("k", 0);
  check(k > INT64_MIN && k < INT64_MAX, "its diagonal is {}", k);
  const Value on = not_below(n.graph(), n.shape(0), k);
  const Value above = not_below(n.graph(), n.shape(0), k + 1);
  n.give(cast(logical_and(on, logical_not(above)), dtype));
}

void trilu(NodeContext& n) {
  check(n.rank(0) >= 2, "its input has {} dimensions", n.rank(0));
  const int64_t k = n.has(1) ? n.whole(1, "diagonal") : 0;
  const bool is_upper = n.integer("upper", 1) != 0;
  check(k < INT64_MAX, "its diagonal is {}", k);
  if (const Known* known = n.known(0); known != nullptr && known->is_empty())
    return n.give(0, n.datum(0));
  const Value upper = not_below(n.graph(), n.shape(0), is_upper ? k : k + 1);
  const Value kept = is_upper ? upper : logical_not(upper);
  const Value x = n.value(0);
  n.give(x.dtype() == DType::kBool ? logical_and(kept, x) : where(kept, x, constant_like(x, 0.0)));
}

void one_hot_of(NodeContext& n) {
  const double asked = n.scalar(1, "depth");
  check(asked >= 1.0 && asked <= static_cast<double>(kMostIndices), "its depth is {}", asked);
  const auto depth = static_cast<int64_t>(asked);
  const int64_t rank = n.rank(0) + 1;
  check(rank <= kMaxRank, "the result has {} dimensions", rank);
  const int64_t axis = normalize_axis(n.integer("axis", -1), rank, "axis");
  check(n.rank(2) == 1 && n.shape(2)[0] == 2, "its values are {}", to_string(n.shape(2)));
  Shape shape = n.shape(0);
  shape.insert(shape.begin() + axis, 1);
  const Value index = reshape(from_front(cast(n.value(0), DType::kI64), depth), shape);
  shape[static_cast<size_t>(axis)] = depth;
  const Value hot = eq(index, iota(n.graph(), {DType::kI64, shape}, axis));
  const Value values = n.value(2);
  n.give(where(hot, reshape(slice(values, 0, 1, 2), {}), reshape(slice(values, 0, 0, 1), {})));
}

// ---- padding ----

// Returns, for each place of the padded axis, the number of the element that it repeats.
std::vector<int64_t> repeated(const std::string& mode, int64_t low, int64_t high, int64_t size) {
  check(low + size + high <= kMostIndices, "it pads an axis of {} by {} and {}", size, low, high);
  std::vector<int64_t> indices;
  for (int64_t i = -low; i < size + high; ++i) {
    int64_t at = std::clamp<int64_t>(i, 0, size - 1);
    if (mode == "wrap") at = ((i % size) + size) % size;
    if (mode == "reflect" && size > 1) {
      const int64_t period = 2 * (size - 1);
      at = ((i % period) + period) % period;
      if (at >= size) at = period - at;
    }
    indices.push_back(at);
  }
  return indices;
}

struct Padding {
  std::vector<int64_t> low, high;  // by axis; negative: elements go
};

Padding padding_of(NodeContext& n) {
  const int64_t rank = n.rank(0);
  const auto pads = n.opset() < 11 ? n.list("pads") : n.integers(1, "pads");
  std::vector<int64_t> axes;
  for (int64_t i = 0; i < rank; ++i) axes.push_back(i);
  if (n.has(3)) axes = n.integers(3, "axes");
  normalized_axes(axes, rank);
  check(pads.size() == 2 * axes.size(), "{} pads of {} axes", pads.size(), axes.size());
  Padding padding{std::vector<int64_t>(static_cast<size_t>(rank), 0),
                  std::vector<int64_t>(static_cast<size_t>(rank), 0)};
  for (size_t i = 0; i < axes.size(); ++i) {
    const auto axis = static_cast<size_t>(normalize_axis(axes[i], rank, "axes"));
    constexpr int64_t kMost = int64_t{1} << 40;
    padding.low[axis] = pads[i];
    padding.high[axis] = pads[i + axes.size()];
    const auto is_far = [](int64_t size) { return size <= -kMost || size >= kMost; };
    check(!is_far(padding.low[axis]) && !is_far(padding.high[axis]),
          "it pads by {} and {}",
          pads[i],
          pads[i + axes.size()]);
  }
  return padding;
}

void pad_of(NodeContext& n) {
  const std::string mode = n.text("mode", "constant");
  check(mode == "constant" || mode == "reflect" || mode == "edge" || mode == "wrap",
        "mode '{}' is not known",
        mode);
  const Padding padding = padding_of(n);
  const double value = n.has(2)         ? n.scalar(2, "value")
                       : n.opset() < 11 ? n.number("value", 0.0)
                                        : 0.0;
  const bool as_image = n.is_image(0);
  Value x = as_image ? n.image(0) : n.value(0);
  std::vector<int64_t> low(padding.low.size(), 0), high = low;
  for (size_t i = 0; i < low.size(); ++i) {
    const auto axis = as_image ? static_cast<size_t>(kImageAxis[i]) : i;
    const auto at = static_cast<int64_t>(axis);
    const int64_t first = std::max<int64_t>(0, -padding.low[i]);
    const int64_t last = x.dim(at) - std::max<int64_t>(0, -padding.high[i]);
    check(first < last, "it takes all of axis {} away", i);
    x = slice(x, at, first, last);
    low[axis] = std::max<int64_t>(0, padding.low[i]);
    high[axis] = std::max<int64_t>(0, padding.high[i]);
    if (mode != "constant" && low[axis] + high[axis] > 0)
      x = take(n, x, repeated(mode, low[axis], high[axis], x.dim(at)), at);
  }
  if (mode == "constant") x = pad(x, low, high, value);
  as_image ? n.give_image(0, x) : n.give(x);
}

constexpr OpRow kConstantOps[] = {
    {"BlackmanWindow", blackman_window},
    {"Constant", constant_of},
    {"ConstantOfShape", constant_of_shape},
    {"EyeLike", eye_like},
    {"HammingWindow", hamming_window},
    {"HannWindow", hann_window},
    {"OneHot", one_hot_of},
    {"Pad", pad_of},
    {"Range", range},
    {"Shape", shape_of},
    {"Size", size_of_input},
    {"Trilu", trilu},
};

}  // namespace

std::span<const OpRow> constant_ops() { return kConstantOps; }

}  // namespace ridge::onnx
