#include "ridge/nn/model.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/nn/cnn.h"
#include "ridge/nn/gpt.h"
#include "ridge/nn/mlp.h"
#include "ridge/nn/mobilenet.h"
#include "ridge/nn/resnet.h"

namespace ridge::nn {

void Model::check_dropout(double p) const {
  check(p >= 0.0 && p < 1.0,
        "{}: dropout out of range; got {}, expected 0 to below 1",
        kind_name(),
        p);
}

void Model::check_head(int64_t outputs, double dropout) const {
  check_dropout(dropout);
  check(outputs >= 1, "{}: outputs must be at least 1; got {}", kind_name(), outputs);
  const TensorType& y = sample_.y;
  if (sample_.regression())
    check(y.elements() == outputs,
          "{}: outputs must be the number of values to predict; got {} for y {}",
          kind_name(),
          outputs,
          to_string(y));
  else
    check(y.rank() == 0,
          "{}: y must be one label a sample, or floats to predict; got {}",
          kind_name(),
          to_string(y));
}

void Model::check_image() const {
  const size_t rank = sample_.x.shape.size();
  check(rank == 2 || rank == 3,
        "{}: a sample must be an image (H, W, C) or (H, W); got {}",
        kind_name(),
        to_string(sample_.x));
}

Value Model::image_of(Value x) const {
  Shape shape = x.shape();
  if (shape.size() == 3) shape.push_back(1);
  return reshape(cast(x, dtype()), shape);
}

std::unique_ptr<Model> make_model(const ModelOptions& options, const SampleTypes& sample) {
  check_type(sample.x, "sample x");
  check_type(sample.y, "sample y");
  check(is_float(options.dtype), "model: dtype must be a float; got {}", name_of(options.dtype));
  check(sample.y.dtype != DType::kBool, "model: y must hold labels or floats; got bool");
  switch (options.kind) {
    case ModelKind::kMlp:
      return std::make_unique<Mlp>(options, sample);
    case ModelKind::kCnn:
      return std::make_unique<Cnn>(options, sample);
    case ModelKind::kResNet18:
      return std::make_unique<ResNet18>(options, sample);
    case ModelKind::kMobileNetV2:
      return std::make_unique<MobileNetV2>(options, sample);
    case ModelKind::kGpt:
      return std::make_unique<Gpt>(options, sample);
  }
  throw InternalError("[make_model] a kind without a model");
}

}  // namespace ridge::nn
