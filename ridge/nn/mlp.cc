#include "ridge/nn/mlp.h"

#include "ridge/graph/ops/activation.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/nn/layers.h"

namespace ridge::nn {

Mlp::Mlp(const ModelOptions& options, const SampleTypes& sample) : Model(options, sample) {
  const MlpOptions& mlp = options.mlp;
  for (int64_t width : mlp.hidden)
    check(width >= 1, "mlp: a hidden layer needs a width of at least 1; got {}", width);
  check_head(mlp.outputs, mlp.dropout);
}

Value Mlp::logits(ModuleContext& context, Value x) const {
  const MlpOptions& mlp = options().mlp;
  Value h = reshape(cast(x, dtype()), {x.dim(0), numel(sample().x.shape)});
  for (size_t i = 0; i < mlp.hidden.size(); ++i) {
    const ModuleContext::Scope scope(context, fmt::format("layers.{}", i));
    h = dropout_layer(context, relu(linear(context, h, mlp.hidden[i])), mlp.dropout);
  }
  const ModuleContext::Scope scope(context, "head");
  return linear(context, h, mlp.outputs);
}

}  // namespace ridge::nn
