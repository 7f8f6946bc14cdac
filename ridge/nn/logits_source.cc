#include "ridge/nn/logits_source.h"

namespace ridge::nn {

LogitsSource::LogitsSource(Training training) : training_(std::move(training)) {
  const Model& model = training_.model();
  const bool has_length = model.options().kind == ModelKind::kGpt;
  const auto spec = [&](const char* name, DType dtype, const Shape& sample) {
    DataSpec made{name, dtype, {"B"}};
    for (const int64_t size : sample)
      made.dims.push_back(has_length && made.dims.size() == 1 ? Dim("T", size) : Dim(size));
    return made;
  };
  const TensorType& x = model.sample().x;
  x_ = spec("x", x.dtype, x.shape);
  const TensorType logits = training_.logits(1).outputs()[0].value.type();
  logits_ = spec("logits", logits.dtype, {logits.shape.begin() + 1, logits.shape.end()});
}

ProgramGraphs LogitsSource::build(const Binding& binding) const {
  const auto length = binding.find("T");
  return only_entry(
      training_.logits({binding.at("B"), length == binding.end() ? 0 : length->second}));
}

}  // namespace ridge::nn
