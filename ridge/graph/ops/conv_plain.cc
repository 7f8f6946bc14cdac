// The plain forms of convolutions: what the windows see is gathered into one factor of a matrix
// product, which has an item for each group.
//
//   y  = seen(x) w                seen(x): a row for each window, a column for each of its elements
//   dx = seen by(dy) w turned     seen by(dy): of each pixel the results that have seen it
//   dw = seen(x) transposed dy
#include "ridge/graph/ops/conv.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/windows.h"

namespace ridge {
namespace {

class ConvolutionProduct {
 public:
  ConvolutionProduct(const auto& op, const Shape& x, const Shape& w, const Shape& y)
      : groups_(op.groups),
        tf32_(op.tf32),
        x_(x),
        w_(w),
        y_(y),
        elements_(w[0] * w[1]),
        rows_{op.window, 0, x[1], w[0], y[1]},
        columns_{op.window, 1, x[2], w[1], y[2]} {}

  Value forward(Value x, Value w) const {
    return image(multiply(seen(x), weights(w, {2, 0, 1, 3}), false), y_);
  }
  Value grad_input(Value dy, Value w) const {
    const Value seen_by =
        is_pixel() ? dy
                   : gather_places(dy, rows_.windows_by_element(), columns_.windows_by_element());
    return image(multiply(factor(seen_by, elements_), weights(w, {2, 0, 3, 1}), false), x_);
  }
  Value grad_weight(Value x, Value dy) const {
    const Value dw = multiply(seen(x), factor(dy, 1), true);
    return reshape(
        groups_ == 1
            ? dw
            : transpose(reshape(dw, {groups_, elements_, w_[2], w_[3] / groups_}), {1, 2, 0, 3}),
        w_);
  }

 private:
  // Windows are single pixels, and all of them are taken.
  bool is_pixel() const {
    return elements_ == 1 && rows_.window.stride == std::vector<int64_t>{1, 1} &&
           rows_.window.padding == std::vector<int64_t>{0, 0, 0, 0};
  }
  Value seen(Value x) const {
    return factor(
        is_pixel() ? x : gather_places(x, rows_.pixels_of_windows(), columns_.pixels_of_windows()),
        elements_);
  }
  // The matrix (places, elements x channels) of x, one for each group; a place holds `elements`
  // elements of all channels.
  Value factor(Value x, int64_t elements) const {
    const int64_t channels = x.shape().back();
    const int64_t places = x.type().elements() / (elements * channels);
    const int64_t own = channels / groups_;
    if (groups_ == 1) return reshape(x, {places, elements * channels});
    return reshape(transpose(reshape(x, {places, elements, groups_, own}), {2, 0, 1, 3}),
                   {groups_, places, elements * own});
  }
  // The matrix of the weights for each group: `order` permutes the axes elements, channels, groups
  // and results; the last one becomes the columns.
  Value weights(Value w, const std::vector<int64_t>& order) const {
    const Shape axes{elements_, w_[2], groups_, w_[3] / groups_};
    const Value moved = transpose(reshape(w, axes), order);
    const int64_t columns = axes[static_cast<size_t>(order.back())];
    Shape matrix{w.type().elements() / groups_ / columns, columns};
    if (groups_ > 1) matrix.insert(matrix.begin(), groups_);
    return reshape(moved, matrix);
  }
  Value image(Value product, const Shape& shape) const {
    return reshape(groups_ == 1 ? product : transpose(product, {1, 0, 2}), shape);
  }
  Value multiply(Value a, Value b, bool transpose_a) const {
    MatMul op;
    op.transpose_a = transpose_a;
    op.accumulate = accumulate_dtype(a.dtype());
    op.tf32 = tf32_;
    return add_node(std::move(op), {a, b});
  }

  int64_t groups_;
  bool tf32_;
  Shape x_, w_, y_;
  int64_t elements_;  // elements of a window
  WindowDimension rows_, columns_;
};

std::vector<TensorType> types_of(std::span<const Value> values) {
  std::vector<TensorType> types;
  for (const Value& value : values) types.push_back(value.type());
  return types;
}

}  // namespace

std::vector<Value> Conv2d::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0], w = inputs[1];
  const Shape y = infer(types_of(inputs))[0].shape;
  return {ConvolutionProduct(*this, x.shape(), w.shape(), y).forward(x, w)};
}

std::vector<Value> Conv2dGradInput::expand(std::span<const Value> inputs) const {
  const Value dy = inputs[0], w = inputs[1];
  const Shape x = infer(types_of(inputs))[0].shape;
  return {ConvolutionProduct(*this, x, w.shape(), dy.shape()).grad_input(dy, w)};
}

std::vector<Value> Conv2dGradWeight::expand(std::span<const Value> inputs) const {
  const Value x = inputs[0], dy = inputs[1];
  const Shape w = infer(types_of(inputs))[0].shape;
  return {ConvolutionProduct(*this, x.shape(), w, dy.shape()).grad_weight(x, dy)};
}

}  // namespace ridge
