#include "ridge/import/onnx/late_convolution.h"

#include "ridge/graph/ops/elementwise.h"

namespace ridge::onnx {
namespace {

const std::vector<int64_t> kToKernel{2, 3, 1, 0};  // (O, I, H, W) to (H, W, I, O)

Shape kernel_shape(const Shape& w) { return {w[2], w[3], w[1], w[0]}; }

}  // namespace

LateConvolution LateConvolution::followed_by(const std::vector<double>& next_scale,
                                             const std::vector<double>& next_shift) const {
  LateConvolution both = *this;
  both.scale.resize(next_scale.size(), 1.0);
  both.shift.resize(next_shift.size(), 0.0);
  for (size_t i = 0; i < next_scale.size(); ++i) {
    both.scale[i] *= next_scale[i];
    both.shift[i] = both.shift[i] * next_scale[i] + next_shift[i];
  }
  return both;
}

TensorType LateConvolution::result() const {
  const Shape& s = x->shape;
  Conv2d op;
  op.window = window;
  op.groups = groups;
  const std::vector<TensorType> operands{{x->dtype, {s[0], s[2], s[3], s[1]}},
                                         {weights->dtype, kernel_shape(weights->shape)}};
  for (const TensorType& type : operands) check_type(type, "conv2d");
  const TensorType type = op.infer(operands)[0];
  check_type(type, "conv2d");
  return type;
}

DatumPtr make_datum(std::string name, LateConvolution convolution) {
  const TensorType type = convolution.result();
  auto datum = std::make_shared<Datum>();
  datum->name = std::move(name);
  datum->dtype = type.dtype;
  datum->shape = {type.shape[0], type.shape[3], type.shape[1], type.shape[2]};
  datum->convolution = std::make_shared<const LateConvolution>(std::move(convolution));
  return datum;
}

Value build(ImportContext& import, const LateConvolution& convolution) {
  const SiteScope site(import.graph(), convolution.site, SiteScope::Path::kAbsolute);
  Value y = conv2d(import.image(*convolution.x),
                   import.moved(*convolution.weights, kToKernel, convolution.scale),
                   convolution.window,
                   convolution.groups);
  if (convolution.shift.empty()) return y;
  Tensor shift({y.dtype(), {std::ssize(convolution.shift)}});
  for (int64_t i = 0; i < shift.elements(); ++i)
    shift.set(i, convolution.shift[static_cast<size_t>(i)]);
  return y + import.stored(Known(std::move(shift)), convolution.weights->name + ":shift");
}

}  // namespace ridge::onnx
