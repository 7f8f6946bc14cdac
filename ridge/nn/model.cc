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
  check(p >= 0.0 && p < 1.0, "{}: dropout out of range; got {}, expected 0 to below 1", kind(), p);
}

void Model::check_head(int64_t outputs, double dropout) const {
  check_dropout(dropout);
  check(outputs >= 1, "{}: outputs must be at least 1; got {}", kind(), outputs);
  const TensorType& y = sample_.y;
  if (sample_.regression())
    check(y.elements() == outputs,
          "{}: outputs must be the number of values to predict; got {} for y {}",
          kind(),
          outputs,
          to_string(y));
  else
    check(y.rank() == 0,
          "{}: y must be one label a sample, or floats to predict; got {}",
          kind(),
          to_string(y));
}

void Model::check_image() const {
  const size_t rank = sample_.x.shape.size();
  check(rank == 2 || rank == 3,
        "{}: a sample must be an image (H, W, C) or (H, W); got {}",
        kind(),
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
  if (options.kind == "mlp") return std::make_unique<Mlp>(options, sample);
  if (options.kind == "cnn") return std::make_unique<Cnn>(options, sample);
  if (options.kind == "resnet18") return std::make_unique<ResNet18>(options, sample);
  if (options.kind == "mobilenetv2") return std::make_unique<MobileNetV2>(options, sample);
  if (options.kind == "gpt") return std::make_unique<Gpt>(options, sample);
  throw UserError(fmt::format("model: unknown kind '{}'", options.kind),
                  "choose mlp, cnn, resnet18, mobilenetv2 or gpt");
}

}  // namespace ridge::nn
