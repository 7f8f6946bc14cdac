// Convolutions and their gradients as lone nodes, for tests of cuDNN.
#pragma once

#include "ridge/graph/graph.h"
#include "ridge/graph/ops/conv.h"

namespace ridge::test {

/// The sizes of a convolution, as conv2d has them.
struct ConvolutionForm {
  const char* what;
  Shape x, w;
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};

/// Part 0: forward, 1: gradient of the input, 2: of the weights. `input(shape)` makes an operand.
template <typename Input>
Value convolution_of(const ConvolutionForm& f, int part, Input input) {
  WindowFields window;
  window.stride = {f.stride, f.stride};
  window.padding = {f.padding, f.padding, f.padding, f.padding};
  window.dilation = {f.dilation, f.dilation};
  const Shape y{f.x[0],
                window.positions(0, f.x[1], f.w[0], "conv2d"),
                window.positions(1, f.x[2], f.w[1], "conv2d"),
                f.w[3]};
  const auto add = [&](auto op, const Shape& first, const Shape& second) {
    op.window = window;
    op.groups = f.groups;
    const Value left = input(first), right = input(second);
    return add_node(std::move(op), {left, right});
  };
  if (part == 0) return add(Conv2d(), f.x, f.w);
  if (part == 1) {
    Conv2dGradInput op;
    op.size = {f.x[1], f.x[2]};
    return add(std::move(op), y, f.w);
  }
  Conv2dGradWeight op;
  op.size = {f.w[0], f.w[1]};
  return add(std::move(op), f.x, y);
}

}  // namespace ridge::test
