// Ops that move elements. A result is walked element by element, or 16 bytes at a time where whole
// runs of them move; what does not move the innermost axis reads and writes neighbours so. What
// does goes through tiles in shared memory.
#include <algorithm>
#include <cstring>

#include "ridge/backend/cuda/print/index_map.h"
#include "ridge/backend/cuda/print/kernel_text.h"
#include "ridge/backend/cuda/print/scalar_text.h"
#include "ridge/base/tensor.h"
#include "ridge/graph/ops/shape.h"

namespace ridge::cuda {

// The type that moves `bytes` bytes at once. No type of numbers has 16 bytes.
std::string unit_type(size_t bytes) {
  return bytes == 16 ? "Pack<uint64_t, 2>" : fmt::format("uint{}_t", 8 * bytes);
}

namespace {

constexpr int64_t kMostUnit = 16;   // bytes that a thread moves at once
constexpr int64_t kLeastTiled = 8;  // elements of either axis: smaller tiles would be mostly empty
constexpr size_t kMostConcatenated = 64;  // inputs of a launch

using Axis = BroadcastMap::Axis;

// The places in the input of the result's elements, in order: axes from the innermost out.
struct Walk {
  std::vector<Axis> axes;
  int64_t start = 0;

  // An axis further out than those before.
  void add(int64_t size, int64_t stride) {
    if (size == 1) return;
    if (!axes.empty() && stride == axes.back().stride * axes.back().size)
      axes.back().size *= size;
    else
      axes.push_back({size, stride});
  }
  int64_t elements() const {
    int64_t n = 1;
    for (const Axis& axis : axes) n *= axis.size;
    return n;
  }
  // One past the last element that is read.
  int64_t reach() const {
    int64_t last = start;
    for (const Axis& axis : axes) last += (axis.size - 1) * axis.stride;
    return last + 1;
  }
};

std::vector<int64_t> strides_of(const Shape& shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t axis = shape.size(); axis-- > 1;) strides[axis - 1] = strides[axis] * shape[axis];
  return strides;
}

Walk transposed(const Node& node) {
  const std::vector<int64_t>& perm = node.op_as<Transpose>().perm;
  const std::vector<int64_t> strides = strides_of(node.inputs[0].shape());
  Walk walk;
  for (size_t i = perm.size(); i-- > 0;)
    walk.add(node.outputs[0].shape[i], strides[static_cast<size_t>(perm[i])]);
  return walk;
}

Walk sliced(const Node& node) {
  const auto& op = node.op_as<Slice>();
  const std::vector<int64_t> strides = strides_of(node.inputs[0].shape());
  Walk walk;
  for (size_t i = strides.size(); i-- > 0;) {
    walk.start += op.start[i] * strides[i];
    walk.add(node.outputs[0].shape[i], op.step[i] * strides[i]);
  }
  return walk;
}

// How many neighbours move as one: so many that every run, and every place where one begins, is a
// multiple of them.
int64_t unit_of(const Walk& walk, int64_t element_bytes) {
  if (walk.axes.empty() || walk.axes[0].stride != 1) return 1;
  int64_t unit = kMostUnit / element_bytes;
  const auto divide = [&unit](int64_t number) {
    while (number % unit != 0) unit /= 2;
  };
  divide(walk.axes[0].size);
  divide(walk.start);
  for (size_t i = 1; i < walk.axes.size(); ++i) divide(walk.axes[i].stride);
  return unit;
}

PrintedKernel print_walk(const Node& node, Walk walk) {
  const auto bytes = static_cast<int64_t>(size_of(node.outputs[0].dtype));
  const int64_t unit = unit_of(walk, bytes);
  if (unit > 1) {
    walk.axes[0].size /= unit;
    walk.start /= unit;
    for (size_t i = 1; i < walk.axes.size(); ++i) walk.axes[i].stride /= unit;
  }
  KernelText text(node);
  const std::string type = unit_type(static_cast<size_t>(unit * bytes));
  const std::string in = text.input(0, type), out = text.output(0, type);
  const int64_t n = walk.elements();
  text.open_stride(n);
  const std::string_view index = index_type_of(std::max(n, walk.reach()));
  text.lines.line("const {} number = i;", index);
  text.lines.line("{}[i] = {}[{}{}];",
                  out,
                  in,
                  walk.start == 0 ? "" : fmt::format("{} + ", walk.start),
                  place_text(walk.axes, "number"));
  text.finish_stride("", n);
  return text.result(node.op->name(), fmt::format("{} times {} bytes.", n, unit * bytes));
}

// ---- tiles ----

// The walk's place of the input's innermost axis, which is not the result's; 0 where it is, or
// where there is none.
size_t turned_axis(const Walk& walk) {
  for (size_t i = 1; i < walk.axes.size(); ++i)
    if (walk.axes[i].stride == 1 && walk.axes[i].size >= kLeastTiled &&
        walk.axes[0].size >= kLeastTiled)
      return i;
  return 0;
}

// `turned` is innermost in the input, axis 0 in the result; a tile is a square of the two, and all
// other axes together count the planes.
PrintedKernel print_tiles(const Node& node, const Walk& walk, size_t turned) {
  const size_t bytes = size_of(node.outputs[0].dtype);
  const int64_t side = bytes <= 2 ? 64 : 32;
  const Axis columns = walk.axes[turned], rows = walk.axes[0];  // axes of the input
  std::vector<Axis> from, to;                                   // planes in input and result
  int64_t below = 1, turned_stride = 0;
  for (size_t i = 0; i < walk.axes.size(); ++i) {
    if (i == turned) turned_stride = below;
    if (i != 0 && i != turned) {
      from.push_back(walk.axes[i]);
      to.push_back({walk.axes[i].size, below});
    }
    below *= walk.axes[i].size;
  }
  const int64_t across = ceil_div(columns.size, side), down = ceil_div(rows.size, side);
  const int64_t tiles = below / (columns.size * rows.size) * across * down;
  KernelText text(node);
  text.include("move.h");
  const std::string type = unit_type(bytes);
  const std::string in = text.input(0, type), out = text.output(0, type);
  Lines& lines = text.lines;
  const std::string_view index = index_type_of(below);
  lines.open("for ({0} tile = blockIdx.x; tile < {1}; tile += gridDim.x)", index, tiles);
  lines.line("const {} plane = tile / {};", index, across * down);
  lines.line(
      "transpose_tile<{}, {}>({} + ({}), {}, {} + ({}), {}, tile / {} % {}, {}, tile % {}, {});",
      type,
      side,
      in,
      place_text(from, "plane"),
      rows.stride,
      out,
      place_text(to, "plane"),
      turned_stride,
      across,
      down,
      rows.size,
      across,
      columns.size);
  lines.close();
  text.finish("", tiles, kThreads);
  return text.result("transpose", fmt::format("{} tiles of {} by {}.", tiles, side, side));
}

// ---- pad ----

struct PaddedAxis {
  int64_t size, low, high, interior;
  bool is_plain() const { return low == 0 && high == 0 && interior == 0; }
  int64_t span() const { return (size - 1) * (interior + 1) + 1; }
  int64_t whole() const { return low + span() + high; }
};

// The axes from the innermost out; one without padding is joined with the one further out.
std::vector<PaddedAxis> padded_axes(const Node& node) {
  const auto& op = node.op_as<Pad>();
  const Shape& shape = node.inputs[0].shape();
  std::vector<PaddedAxis> axes;
  for (size_t i = shape.size(); i-- > 0;) {
    PaddedAxis axis{shape[i], op.low[i], op.high[i], op.interior[i]};
    if (!axes.empty() && axes.back().is_plain() && axis.interior == 0) {
      const int64_t inner = axes.back().size;
      axes.back() = {axis.size * inner, axis.low * inner, axis.high * inner, 0};
    } else {
      axes.push_back(axis);
    }
  }
  if (axes.empty()) axes.push_back({1, 0, 0, 0});
  return axes;
}

// Divides the innermost axis by the neighbours that move as one, and says how many they are.
int64_t take_unit(std::vector<PaddedAxis>& axes, int64_t element_bytes) {
  PaddedAxis& inner = axes[0];
  if (inner.interior != 0) return 1;
  int64_t unit = kMostUnit / element_bytes;
  for (const int64_t number : {inner.size, inner.low, inner.high})
    while (number % unit != 0) unit /= 2;
  inner = {inner.size / unit, inner.low / unit, inner.high / unit, 0};
  return unit;
}

// A value of the dtype, as often as it goes into a unit.
std::string filled_unit(DType dtype, double value, int64_t bytes) {
  Tensor one(TensorType{dtype, {}});
  one.set(0, value);
  uint64_t bits = 0;
  for (size_t at = 0; at < sizeof bits; at += size_of(dtype))
    std::memcpy(reinterpret_cast<std::byte*>(&bits) + at, one.data(), size_of(dtype));
  if (bytes == 16) return fmt::format("Pack<uint64_t, 2>{{{{{0:#x}ull, {0:#x}ull}}}}", bits);
  if (bytes < 8) bits &= (uint64_t{1} << (8 * bytes)) - 1;
  return fmt::format("{}({:#x}ull)", unit_type(static_cast<size_t>(bytes)), bits);
}

PrintedKernel print_pad(const Node& node) {
  const DType dtype = node.outputs[0].dtype;
  const auto bytes = static_cast<int64_t>(size_of(dtype));
  std::vector<PaddedAxis> axes = padded_axes(node);
  const int64_t unit = take_unit(axes, bytes), n = node.outputs[0].elements() / unit;
  KernelText text(node);
  const std::string type = unit_type(static_cast<size_t>(unit * bytes));
  const std::string in = text.input(0, type), out = text.output(0, type);
  Lines& lines = text.lines;
  text.open_stride(n);
  std::string is_in, at;
  int64_t below = 1, stride = 1;  // in the result and in the input
  for (size_t k = 0; k < axes.size(); ++k) {
    const PaddedAxis& axis = axes[k];
    const std::string remainder =
        k + 1 < axes.size() ? fmt::format(" % {}", axis.whole()) : std::string();
    // Before the first element the difference wraps, and is large.
    lines.line("const {} d{} = i / {}{} - {};", index_type_of(n), k, below, remainder, axis.low);
    if (!axis.is_plain())
      is_in += fmt::format("{}d{} < {}", is_in.empty() ? "" : " && ", k, axis.span());
    if (axis.interior > 0) is_in += fmt::format(" && d{} % {} == 0", k, axis.interior + 1);
    at += fmt::format("{}d{}{}{}",
                      k == 0 ? "" : " + ",
                      k,
                      axis.interior > 0 ? fmt::format(" / {}", axis.interior + 1) : "",
                      stride == 1 ? "" : fmt::format(" * {}", stride));
    below *= axis.whole();
    stride *= axis.size;
  }
  lines.line("{}[i] = {} ? {}[{}] : {};",
             out,
             is_in.empty() ? "true" : is_in,
             in,
             at,
             filled_unit(dtype, node.op_as<Pad>().value, unit * bytes));
  text.finish_stride("", n);
  return text.result("pad", fmt::format("{} times {} bytes.", n, unit * bytes));
}

// ---- concat ----

// A launch for each 64 inputs: those write columns [begin, begin + width) of all rows.
PrintedKernel print_concat(const Node& node) {
  const auto axis = static_cast<size_t>(node.op_as<Concat>().axis);
  const Shape& shape = node.outputs[0].shape;
  const auto bytes = static_cast<int64_t>(size_of(node.outputs[0].dtype));
  int64_t rows = 1, inner = 1;
  for (size_t i = 0; i < axis; ++i) rows *= shape[i];
  for (size_t i = axis + 1; i < shape.size(); ++i) inner *= shape[i];
  int64_t unit = kMostUnit / bytes;
  for (const Value& value : node.inputs)
    while (value.shape()[axis] * inner % unit != 0) unit /= 2;
  const auto width_of = [&](const Value& value) { return value.shape()[axis] * inner / unit; };
  const int64_t row = shape[axis] * inner / unit;
  KernelText text(node);
  const std::string type = unit_type(static_cast<size_t>(unit * bytes));
  int64_t begin = 0;
  for (size_t first = 0; first < node.inputs.size(); first += kMostConcatenated) {
    const size_t end = std::min(node.inputs.size(), first + kMostConcatenated);
    int64_t width = 0;
    for (size_t i = first; i < end; ++i) width += width_of(node.inputs[i]);
    const std::string out = text.output(0, type);
    text.open_stride(rows * width);
    text.lines.line("const {0} row = i / {1}, column = i % {1};", index_type_of(rows * row), width);
    text.lines.line("auto& to = {}[row * {} + column{}];",
                    out,
                    row,
                    begin == 0 ? "" : fmt::format(" + {}", begin));
    int64_t left = 0;  // columns of the launch before this input
    for (size_t i = first; i < end; ++i) {
      const int64_t own = width_of(node.inputs[i]);
      text.lines.line("{}{}to = {}[row * {} + column{}];",
                      i == first ? "" : "else ",
                      i + 1 == end ? "" : fmt::format("if (column < {}) ", left + own),
                      text.input(i, type),
                      own,
                      left == 0 ? "" : fmt::format(" - {}", left));
      left += own;
    }
    text.finish_stride(first == 0 ? "" : fmt::format("_{}", first), rows * width);
    begin += width;
  }
  return text.result("concat",
                     fmt::format("{} rows of {} times {} bytes.", rows, row, unit * bytes));
}

}  // namespace

std::optional<PrintedKernel> print_move(const Node& node) {
  if (node.is<Copy>() || node.is<Reshape>() || node.is<Barrier>()) {
    Walk walk;
    walk.add(node.outputs[0].elements(), 1);
    return print_walk(node, walk);
  }
  if (node.is<Slice>()) return print_walk(node, sliced(node));
  if (node.is<Pad>()) return print_pad(node);
  if (node.is<Concat>()) return print_concat(node);
  if (!node.is<Transpose>()) return std::nullopt;
  const Walk walk = transposed(node);
  const size_t turned = turned_axis(walk);
  return turned == 0 ? print_walk(node, walk) : print_tiles(node, walk, turned);
}

}  // namespace ridge::cuda
