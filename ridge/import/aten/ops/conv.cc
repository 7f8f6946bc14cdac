// Convolutions of lines and images, their transposes, and the gradients of both.
#include "ridge/graph/ops/conv.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/import/aten/node_context.h"
#include "ridge/import/aten/op_table.h"

namespace ridge::aten {
namespace {

// The arguments that a convolution and its gradient share, those from `first` on: stride, padding,
// dilation, transposed, output_padding, groups.
struct Geometry {
  WindowFields window;
  int64_t groups = 1;
  bool transposed = false;
};

// Lists may have one element for all axes; a line is an image of height 1.
std::vector<int64_t> of_image(std::vector<int64_t> list, int64_t axes, int64_t fill) {
  if (list.size() == 1 && axes == 2) list.push_back(list[0]);
  check(std::ssize(list) == axes, "a list has {} elements for {} axes", list.size(), axes);
  if (axes == 1) list.insert(list.begin(), fill);
  return list;
}

Geometry geometry(const NodeContext& n, size_t first, int64_t rank) {
  check(rank == 3 || rank == 4, "it has {} dimensions; 3 and 4 are supported", rank);
  const int64_t axes = rank - 2;
  Geometry of;
  of.window.stride = of_image(n.list(first), axes, 1);
  const std::vector<int64_t> padding = of_image(n.list(first + 1), axes, 0);
  of.window.padding = {padding[0], padding[1], padding[0], padding[1]};
  of.window.dilation = of_image(n.list(first + 2), axes, 1);
  of.window.check_fields("convolution");
  of.transposed = n.flag(first + 3);
  of.groups = n.integer(first + 5);
  return of;
}

Value image_of(const NodeContext& n, size_t i) {
  if (n.rank(i) == 4) return n.image(i);
  const Value x = n.moved(i, {0, 2, 1});
  return reshape(x, {x.dim(0), 1, x.dim(1), x.dim(2)});
}

void give_image_of(NodeContext& n, size_t result, Value image, int64_t rank) {
  if (rank == 4) return n.give_image(result, image);
  n.give(result, transpose(reshape(image, {image.dim(0), image.dim(2), image.dim(3)}), {0, 2, 1}));
}

// Weights (O, I, W) or (O, I, H, W) as (H, W, I, O), and back.
Value kernel_of(const NodeContext& n, size_t i) {
  if (n.rank(i) == 4) return n.moved(i, {2, 3, 1, 0});
  const Value w = n.moved(i, {2, 1, 0});
  return reshape(w, {1, w.dim(0), w.dim(1), w.dim(2)});
}

Value as_weights(Value kernel, const Shape& shape) {
  return reshape(transpose(kernel, {3, 2, 0, 1}), shape);
}

std::vector<int64_t> image_size(const Shape& shape) {
  check(shape.size() == 3 || shape.size() == 4, "it has {} dimensions", shape.size());
  return {shape.size() == 4 ? shape[2] : 1, shape.back()};
}

template <typename Op>
Value convolved(Op op, const Geometry& of, Value a, Value b) {
  op.window = of.window;
  op.groups = of.groups;
  return add_node(std::move(op), {a, b});
}

// A window that slides along height or width.
struct Line {
  int64_t length, positions, stride, dilation, low;
};

// The taps of a kernel (O, I, H, W) that see more than padding at some position. A kernel of 3x3
// has one of nine over images of one pixel, which the last stages of CNNs make of small pictures.
struct UsedTaps {
  std::vector<int64_t> begin, end;  // along height and width
  std::vector<int64_t> kernel;      // sizes of the whole kernel

  bool are_all() const { return begin == std::vector<int64_t>{0, 0} && end == kernel; }
  std::vector<int64_t> sizes() const { return {end[0] - begin[0], end[1] - begin[1]}; }

  // Gradients of the used taps with zeros for the others.
  Value widened(Value taps) const {
    if (are_all()) return taps;
    return pad(taps, {0, 0, begin[0], begin[1]}, {0, 0, kernel[0] - end[0], kernel[1] - end[1]});
  }
};

// True where tap `tap` sees the image at one of so many positions.
bool sees_image(const Line& line, int64_t tap) {
  const int64_t first = tap * line.dilation - line.low;
  const int64_t i = first < 0 ? (line.stride - 1 - first) / line.stride : 0;  // the first inside
  return i < line.positions && first + i * line.stride < line.length;
}

// Narrows the window to the used taps: all positions stay, and see what they saw.
UsedTaps use_taps(WindowFields& window, const Shape& image, const Shape& kernel) {
  check(image.size() == 4 && kernel.size() == 4, "images and kernels need four dimensions each");
  UsedTaps used{{0, 0}, {kernel[2], kernel[3]}, {kernel[2], kernel[3]}};
  for (size_t i = 0; i < 2; ++i) {
    const auto positions = [&](const WindowFields& of, int64_t taps) {
      return of.positions(static_cast<int>(i), image[i + 2], taps, "convolution");
    };
    const Line line{.length = image[i + 2],
                    .positions = positions(window, kernel[i + 2]),
                    .stride = window.stride[i],
                    .dilation = window.dilation[i],
                    .low = window.padding[i]};
    int64_t begin = 0, end = kernel[i + 2];
    while (end - begin > 1 && !sees_image(line, end - 1)) --end;
    while (end - begin > 1 && !sees_image(line, begin) && line.low >= (begin + 1) * line.dilation)
      ++begin;
    WindowFields narrow = window;
    narrow.padding[i] = line.low - begin * line.dilation;
    const int64_t reach =
        (line.positions - 1) * line.stride + (end - begin - 1) * line.dilation + 1;
    narrow.padding[i + 2] = std::max<int64_t>(0, reach - narrow.padding[i] - line.length);
    if (positions(narrow, end - begin) != line.positions) continue;
    used.begin[i] = begin;
    used.end[i] = end;
    window = narrow;
  }
  return used;
}

Value with_taps(const NodeContext& n, size_t weight, const UsedTaps& used) {
  if (used.are_all()) return kernel_of(n, weight);
  const std::string what = fmt::format("taps {} to {} of {}", used.begin, used.end, used.kernel);
  return n.derived(weight, what, [&](Value whole) {
    const Value rows = slice(whole, 2, used.begin[0], used.end[0]);
    return transpose(slice(rows, 3, used.begin[1], used.end[1]), {2, 3, 1, 0});
  });
}

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution(NodeContext& n) {
  Geometry of = geometry(n, 3, n.rank(0));
  const int64_t rank = n.rank(0);
  Value y;
  if (of.transposed) {
    Conv2dGradInput op;
    op.size = image_size(n.result_type().shape);
    y = convolved(op, of, image_of(n, 0), kernel_of(n, 1));
  } else if (rank == 4) {
    const UsedTaps used = use_taps(of.window, n.shape(0), n.shape(1));
    y = convolved(Conv2d{}, of, n.image(0), with_taps(n, 1, used));
  } else {
    y = convolved(Conv2d{}, of, image_of(n, 0), kernel_of(n, 1));
  }
  if (n.has(2)) y = y + n.value(2);
  give_image_of(n, 0, y, rank);
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
// transposed, output_padding, groups, output_mask)
void convolution_backward(NodeContext& n) {
  Geometry of = geometry(n, 4, n.rank(1));
  const Value dy = image_of(n, 0);
  std::optional<UsedTaps> used;
  if (n.rank(1) == 4 && !of.transposed) used = use_taps(of.window, n.shape(1), n.shape(2));
  if (n.wants(0)) {
    Conv2dGradInput op;
    op.size = image_size(n.shape(1));
    const Value w = used ? with_taps(n, 2, *used) : kernel_of(n, 2);
    const Value dx = of.transposed ? convolved(Conv2d{}, of, dy, w) : convolved(op, of, dy, w);
    give_image_of(n, 0, dx, n.rank(1));
  }
  if (n.wants(1)) {
    Conv2dGradWeight op;
    op.size = used ? used->sizes() : image_size(n.shape(2));
    // Transposed, the image is the gradient and the gradient the image.
    const Value x = image_of(n, 1);
    const Value dw = of.transposed ? convolved(op, of, dy, x) : convolved(op, of, x, dy);
    n.give(1, used ? used->widened(transpose(dw, {3, 2, 0, 1})) : as_weights(dw, n.shape(2)));
  }
  if (n.wants(2)) n.give(2, reduce_sum(dy, {0, 1, 2}));
}

constexpr OpRow kConvOps[] = {
    {"convolution.default", convolution},
    {"convolution_backward.default", convolution_backward},
};

}  // namespace

std::span<const OpRow> conv_ops() { return kConvOps; }

}  // namespace ridge::aten
