// Convolutions of lines and images, their transposes, and the gradients of both.
#include "ridge/graph/ops/conv.h"

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

// convolution(input, weight, bias, stride, padding, dilation, transposed, output_padding, groups)
void convolution(NodeContext& n) {
  const Geometry of = geometry(n, 3, n.rank(0));
  const int64_t rank = n.rank(0);
  Value y;
  if (of.transposed) {
    Conv2dGradInput op;
    op.size = image_size(n.result_type().shape);
    y = convolved(op, of, image_of(n, 0), kernel_of(n, 1));
  } else {
    y = convolved(Conv2d{}, of, image_of(n, 0), kernel_of(n, 1));
  }
  if (n.has(2)) y = y + n.value(2);
  give_image_of(n, 0, y, rank);
}

// convolution_backward(grad_output, input, weight, bias_sizes, stride, padding, dilation,
// transposed, output_padding, groups, output_mask)
void convolution_backward(NodeContext& n) {
  const Geometry of = geometry(n, 4, n.rank(1));
  const Value dy = image_of(n, 0);
  if (n.wants(0)) {
    Conv2dGradInput op;
    op.size = image_size(n.shape(1));
    const Value dx = of.transposed ? convolved(Conv2d{}, of, dy, kernel_of(n, 2))
                                   : convolved(op, of, dy, kernel_of(n, 2));
    give_image_of(n, 0, dx, n.rank(1));
  }
  if (n.wants(1)) {
    Conv2dGradWeight op;
    op.size = image_size(n.shape(2));
    // Transposed, the image is the gradient and the gradient the image.
    const Value x = image_of(n, 1);
    const Value dw = of.transposed ? convolved(op, of, dy, x) : convolved(op, of, x, dy);
    n.give(1, as_weights(dw, n.shape(2)));
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
