// Pooling and its gradients: one walk over the windows.
#include "ridge/graph/ops/pool.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// The elements of x (N, H, W, C) in the window of output pixel (n, oh, ow, channel), rows first.
std::vector<size_t> window_elements(
    const PoolFields& pool, const Shape& x, int64_t n, int64_t oh, int64_t ow, int64_t channel) {
  const int64_t top = oh * pool.window.stride[0] - pool.window.padding[0];
  const int64_t left = ow * pool.window.stride[1] - pool.window.padding[1];
  std::vector<size_t> elements;
  for (int64_t h = top; h < top + pool.kernel[0]; ++h)
    for (int64_t w = left; w < left + pool.kernel[1]; ++w)
      if (h >= 0 && h < x[1] && w >= 0 && w < x[2]) elements.push_back(at(x, n, h, w, channel));
  return elements;
}

// Calls visit(element of y, elements of x in its window) for all of y (N, OH, OW, C).
template <typename F>
void visit_windows(const PoolFields& pool, const Shape& x, const Shape& y, F visit) {
  for (int64_t n = 0; n < y[0]; ++n)
    for (int64_t oh = 0; oh < y[1]; ++oh)
      for (int64_t ow = 0; ow < y[2]; ++ow)
        for (int64_t c = 0; c < y[3]; ++c)
          visit(at(y, n, oh, ow, c), window_elements(pool, x, n, oh, ow, c));
}

// The first largest of the given elements of x.
size_t largest(const std::vector<double>& x, const std::vector<size_t>& elements) {
  size_t best = elements.at(0);
  for (size_t element : elements)
    if (is_larger(x[element], x[best])) best = element;
  return best;
}

// The divisor of the sum over a window.
double divisor(const PoolFields& pool, bool count_padding, size_t elements) {
  return static_cast<double>(count_padding ? pool.kernel[0] * pool.kernel[1]
                                           : static_cast<int64_t>(elements));
}

void max_pool2d(const MaxPool2d& op, const Call& call) {
  const std::vector<double> x = call.read<double>(0);
  std::vector<double> y = call.zeros<double>(0);
  visit_windows(op.pool,
                call.inputs[0].shape,
                call.outputs[0].shape,
                [&](size_t i, const std::vector<size_t>& window) { y[i] = x[largest(x, window)]; });
  call.write(0, y);
}

void max_pool2d_grad(const MaxPool2dGrad& op, const Call& call) {
  const std::vector<double> x = call.read<double>(0), dy = call.read<double>(1);
  std::vector<double> dx = call.zeros<double>(0);
  visit_windows(
      op.pool,
      call.inputs[0].shape,
      call.inputs[1].shape,
      [&](size_t i, const std::vector<size_t>& window) { dx[largest(x, window)] += dy[i]; });
  call.write(0, dx);
}

void avg_pool2d(const AvgPool2d& op, const Call& call) {
  const std::vector<double> x = call.read<double>(0);
  std::vector<double> y = call.zeros<double>(0);
  visit_windows(op.pool,
                call.inputs[0].shape,
                call.outputs[0].shape,
                [&](size_t i, const std::vector<size_t>& window) {
                  for (size_t element : window) y[i] += x[element];
                  y[i] /= divisor(op.pool, op.count_padding, window.size());
                });
  call.write(0, y);
}

void avg_pool2d_grad(const AvgPool2dGrad& op, const Call& call) {
  const std::vector<double> dy = call.read<double>(0);
  std::vector<double> dx = call.zeros<double>(0);
  visit_windows(op.pool,
                call.outputs[0].shape,
                call.inputs[0].shape,
                [&](size_t i, const std::vector<size_t>& window) {
                  const double share = dy[i] / divisor(op.pool, op.count_padding, window.size());
                  for (size_t element : window) dx[element] += share;
                });
  call.write(0, dx);
}

}  // namespace

void add_pool_kernels(KernelTable& table) {
  add_kernel<MaxPool2d>(table, max_pool2d);
  add_kernel<MaxPool2dGrad>(table, max_pool2d_grad);
  add_kernel<AvgPool2d>(table, avg_pool2d);
  add_kernel<AvgPool2dGrad>(table, avg_pool2d_grad);
}

}  // namespace ridge::ref
