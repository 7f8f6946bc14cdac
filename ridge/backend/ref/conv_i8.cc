// Convolution of bytes.
#include "ridge/graph/ops/conv_i8.h"

#include "ridge/backend/ref/product_i8.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

class ConvolutionI8 {
 public:
  ConvolutionI8(const Conv2dI8& op, const Call& call)
      : op_(op),
        shape_x_(call.inputs[Conv2dI8::kA].shape),
        shape_w_(call.inputs[Conv2dI8::kB].shape),
        x_(call.read<int64_t>(Conv2dI8::kA)),
        w_(call.read<int64_t>(Conv2dI8::kB)),
        x_zero_(call.read<int64_t>(Conv2dI8::kAZero)),
        w_zero_(call.read<int64_t>(Conv2dI8::kBZero)) {}

  // The sum of the window at (i, j) of image n for channel o. Pixels beyond the image add nothing.
  int64_t sum(int64_t n, int64_t i, int64_t j, int64_t o) const {
    const WindowFields& window = op_.window;
    const int64_t inputs = shape_w_[2], first = o / (shape_w_[3] / op_.groups) * inputs;
    const int64_t w_zero = lane(w_zero_, static_cast<size_t>(o));
    int64_t sum = 0;
    for (int64_t kh = 0; kh < shape_w_[0]; ++kh)
      for (int64_t kw = 0; kw < shape_w_[1]; ++kw) {
        const int64_t row = i * window.stride[0] - window.padding[0] + kh * window.dilation[0];
        const int64_t column = j * window.stride[1] - window.padding[1] + kw * window.dilation[1];
        if (row < 0 || row >= shape_x_[1] || column < 0 || column >= shape_x_[2]) continue;
        for (int64_t c = 0; c < inputs; ++c)
          sum += (x_[at(shape_x_, n, row, column, first + c)] - x_zero_[0]) *
                 (w_[at(shape_w_, kh, kw, c, o)] - w_zero);
      }
    return sum;
  }

 private:
  const Conv2dI8& op_;
  const Shape &shape_x_, &shape_w_;
  std::vector<int64_t> x_, w_, x_zero_, w_zero_;
};

void conv2d_i8(const Conv2dI8& op, const Call& call) {
  const ConvolutionI8 convolution(op, call);
  const ResultsI8 results(op, call);
  std::vector<double> y = call.zeros<double>(0);
  const Shape& shape = call.outputs[0].shape;
  for (int64_t n = 0; n < shape[0]; ++n)
    for (int64_t i = 0; i < shape[1]; ++i)
      for (int64_t j = 0; j < shape[2]; ++j)
        for (int64_t o = 0; o < shape[3]; ++o)
          y[at(shape, n, i, j, o)] =
              results.of(convolution.sum(n, i, j, o), static_cast<size_t>(o));
  call.write(0, y);
}

}  // namespace

void add_conv_i8_kernels(KernelTable& table) { add_kernel<Conv2dI8>(table, conv2d_i8); }

}  // namespace ridge::ref
