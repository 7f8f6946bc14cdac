// Convolution and its two gradients: one walk over all products x * w that make up y, of which each
// kernel sums another way.
#include "ridge/graph/ops/conv.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// The three shapes x (N, H, W, C), w (KH, KW, C / groups, O) and y (N, OH, OW, O).
struct Convolved {
  const Shape &x, &w, &y;
  const WindowFields& window;
  int64_t groups;
};

// Calls visit(element of x, of w, of y) for all products that make up one output pixel.
template <typename F>
void visit_window(const Convolved& c, int64_t n, int64_t oh, int64_t ow, F& visit) {
  const int64_t inputs = c.w[2], outputs = c.w[3] / c.groups;  // channels of one group
  for (int64_t kh = 0; kh < c.w[0]; ++kh)
    for (int64_t kw = 0; kw < c.w[1]; ++kw) {
      const int64_t h = oh * c.window.stride[0] - c.window.padding[0] + kh * c.window.dilation[0];
      const int64_t w = ow * c.window.stride[1] - c.window.padding[1] + kw * c.window.dilation[1];
      if (h < 0 || h >= c.x[1] || w < 0 || w >= c.x[2]) continue;
      for (int64_t o = 0; o < c.w[3]; ++o) {
        const int64_t first = o / outputs * inputs;  // first input channel of the group
        for (int64_t i = 0; i < inputs; ++i)
          visit(at(c.x, n, h, w, first + i), at(c.w, kh, kw, i, o), at(c.y, n, oh, ow, o));
      }
    }
}

template <typename F>
void visit_products(const Convolved& c, F visit) {
  for (int64_t n = 0; n < c.y[0]; ++n)
    for (int64_t oh = 0; oh < c.y[1]; ++oh)
      for (int64_t ow = 0; ow < c.y[2]; ++ow) visit_window(c, n, oh, ow, visit);
}

void conv2d(const Conv2d& op, const Call& call) {
  const std::vector<double> x = call.read<double>(0), w = call.read<double>(1);
  std::vector<double> y = call.zeros<double>(0);
  const Convolved shapes{
      call.inputs[0].shape, call.inputs[1].shape, call.outputs[0].shape, op.window, op.groups};
  visit_products(shapes, [&](size_t ix, size_t iw, size_t iy) { y[iy] += x[ix] * w[iw]; });
  call.write(0, y);
}

void conv2d_grad_input(const Conv2dGradInput& op, const Call& call) {
  const std::vector<double> dy = call.read<double>(0), w = call.read<double>(1);
  std::vector<double> dx = call.zeros<double>(0);
  const Convolved shapes{
      call.outputs[0].shape, call.inputs[1].shape, call.inputs[0].shape, op.window, op.groups};
  visit_products(shapes, [&](size_t ix, size_t iw, size_t iy) { dx[ix] += dy[iy] * w[iw]; });
  call.write(0, dx);
}

void conv2d_grad_weight(const Conv2dGradWeight& op, const Call& call) {
  const std::vector<double> x = call.read<double>(0), dy = call.read<double>(1);
  std::vector<double> dw = call.zeros<double>(0);
  const Convolved shapes{
      call.inputs[0].shape, call.outputs[0].shape, call.inputs[1].shape, op.window, op.groups};
  visit_products(shapes, [&](size_t ix, size_t iw, size_t iy) { dw[iw] += x[ix] * dy[iy]; });
  call.write(0, dw);
}

}  // namespace

void add_conv_kernels(KernelTable& table) {
  add_kernel<Conv2d>(table, conv2d);
  add_kernel<Conv2dGradInput>(table, conv2d_grad_input);
  add_kernel<Conv2dGradWeight>(table, conv2d_grad_weight);
}

}  // namespace ridge::ref
