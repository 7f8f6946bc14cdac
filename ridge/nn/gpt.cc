#include "ridge/nn/gpt.h"

#include <cmath>

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/matmul.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/nn/layers.h"

namespace ridge::nn {
namespace {

constexpr double kDeviation = 0.02;

// Ids as a dtype that lookups take.
Value index_ids(Value x) { return kIndices.has(x.dtype()) ? x : cast(x, DType::kI32); }

}  // namespace

Gpt::Gpt(const ModelOptions& options, const SampleTypes& sample) : Model(options, sample) {
  const GptOptions& gpt = options.gpt;
  check(is_integer(sample.x.dtype) && sample.x.rank() == 1,
        "gpt: a sample must be a row of token ids; got {}",
        to_string(sample.x));
  check(!sample.regression() && sample.y.shape == sample.x.shape,
        "gpt: y must hold the id that follows each of x; got {} for {}",
        to_string(sample.y),
        to_string(sample.x));
  check(gpt.vocab >= 2, "gpt: vocab must be at least 2; got {}", gpt.vocab);
  check(gpt.layers >= 1 && gpt.layers <= kMaxRepeats,
        "gpt: layers out of range; got {}, expected 1 to {}",
        gpt.layers,
        kMaxRepeats);
  check(gpt.width >= 1 && gpt.heads >= 1 && gpt.width % gpt.heads == 0,
        "gpt: heads must divide the width; got width {} and {} heads",
        gpt.width,
        gpt.heads);
  check(sample.x.shape[0] <= gpt.context,
        "gpt: a sample is longer than the context; got {} tokens, expected at most {}",
        sample.x.shape[0],
        gpt.context);
  check_dropout(gpt.dropout);
}

Value Gpt::block(ModuleContext& context, Value x) const {
  const GptOptions& gpt = options().gpt;
  // 2 * layers branches add up in the residual stream: so scaled, its variance does not grow.
  const double output_deviation = kDeviation / std::sqrt(2.0 * static_cast<double>(gpt.layers));
  const auto norm = [&](std::string_view name, Value h) {
    const ModuleContext::Scope scope(context, name);
    return layer_norm_layer(context, h);
  };
  const auto branch = [&](std::string_view name, auto&& body) {
    const ModuleContext::Scope scope(context, name);
    x = x + dropout_layer(context, body(), gpt.dropout);
  };
  const Value attention_input = norm("norm1", x);
  branch("attn", [&] {
    return causal_self_attention(
        context, attention_input, {gpt.heads, kDeviation, output_deviation});
  });
  const Value mlp_input = norm("norm2", x);
  branch("mlp", [&] {
    return feed_forward(context, mlp_input, {4 * gpt.width, kDeviation, output_deviation});
  });
  return x;
}

Value Gpt::logits(ModuleContext& context, Value x) const {
  const GptOptions& gpt = options().gpt;
  Value tokens, positions;
  {
    const ModuleContext::Scope scope(context, "tokens");
    tokens = embedding_table(context, gpt.vocab, gpt.width, kDeviation);
  }
  {
    const ModuleContext::Scope scope(context, "positions");
    positions = embedding_table(context, gpt.context, gpt.width, kDeviation);
  }
  Value h;
  {
    const ModuleContext::Scope scope(context, "embed");
    h = embedding(tokens, index_ids(x)) + slice(positions, 0, 0, x.dim(1));
    h = dropout_layer(context, h, gpt.dropout);
  }
  for (int64_t i = 0; i < gpt.layers; ++i) {
    const ModuleContext::Scope scope(context, fmt::format("blocks.{}", i));
    h = block(context, h);
  }
  {
    const ModuleContext::Scope scope(context, "norm");
    h = layer_norm_layer(context, h);
  }
  const ModuleContext::Scope scope(context, "head");
  return matmul(h, tokens, false, /*transpose_b=*/true);
}

}  // namespace ridge::nn
