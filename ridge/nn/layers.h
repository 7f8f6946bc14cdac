// Layers: functions that declare their parameters in a context and add their nodes to its graph.
// The caller opens the scope that names them.
#pragma once

#include <cstdint>

#include "ridge/graph/ops/batch_norm.h"
#include "ridge/nn/module.h"

namespace ridge::nn {

/// How a linear layer or a convolution starts and whether it adds a bias.
struct WeightOptions {
  bool bias = true;
  double deviation = 0.0;  ///< Normal with this deviation, biases 0; 0: by the fan-in.
};

/// x (..., in) -> (..., outputs): "weight" (in, outputs), the layout that a product reads fastest,
/// and "bias" (outputs).
Value linear(ModuleContext& context, Value x, int64_t outputs, WeightOptions options = {});

/// The number of products that scales a convolution's first weights: those that one output sums, or
/// those that one input enters.
enum class ConvStart : uint8_t { kFanIn, kFanOut };

/// A square window with the padding that keeps the size at stride 1.
struct ConvOptions {
  int64_t kernel = 3;  ///< Odd.
  int64_t stride = 1;
  int64_t groups = 1;
  bool bias = true;
  ConvStart start = ConvStart::kFanIn;
};

/// x (B, H, W, C) -> (B, ceil(H / stride), ceil(W / stride), channels): "weight" (kernel, kernel,
/// C / groups, channels) and "bias" (channels).
Value conv(ModuleContext& context, Value x, int64_t channels, ConvOptions options = {});

/// x (..., C): "scale", "shift", the activation, and the running "mean" and "variance" (C). In
/// training the batch's statistics normalise, and the running ones move towards them by `momentum`,
/// the variance being the unbiased one (as in PyTorch); otherwise the running ones normalise.
/// UserError in training when a channel has one value only.
Value batch_norm_layer(ModuleContext& context,
                       Value x,
                       double momentum,
                       NormActivation activation = NormActivation::kNone);

/// x (..., C): "scale" and "shift" (C).
Value layer_norm_layer(ModuleContext& context, Value x);

/// "weight" (rows, width), normal with `deviation`.
Value embedding_table(ModuleContext& context, int64_t rows, int64_t width, double deviation);

/// Drops elements in training; x itself otherwise and for p = 0. The batch is on axis 0.
Value dropout_layer(ModuleContext& context, Value x, double p);

struct AttentionLayerOptions {
  int64_t heads = 1;               ///< Divides the width.
  double deviation = 0.02;         ///< Standard deviation of "qkv.weight" (width, 3 width).
  double output_deviation = 0.02;  ///< Standard deviation of "out.weight" (width, width).
};

/// x (B, T, width) -> (B, T, width): each position attends to itself and those before it.
Value causal_self_attention(ModuleContext& context, Value x, const AttentionLayerOptions& options);

struct FeedForwardOptions {
  int64_t hidden = 1;
  double deviation = 0.02;         ///< Standard deviation of "up.weight" (width, hidden).
  double output_deviation = 0.02;  ///< Standard deviation of "down.weight" (hidden, width).
};

/// x (..., width) -> up, tanh GELU, down -> (..., width).
Value feed_forward(ModuleContext& context, Value x, const FeedForwardOptions& options);

struct ResidualOptions {
  int64_t channels = 1;
  int64_t stride = 1;
  bool batch_norm = true;
  double momentum = 0.1;
  NormActivation activation = NormActivation::kRelu;  ///< For conv_norm; blocks have ReLUs.
  ConvStart start = ConvStart::kFanIn;
};

/// A 3x3 convolution, with bias only without batch norm, then batch norm and the activation.
Value conv_norm(ModuleContext& context,
                Value x,
                const ResidualOptions& options,
                int64_t kernel = 3);

/// Two 3x3 convolutions around a shortcut (He et al., "Deep residual learning", 2016), which is a
/// 1x1 convolution where the shape changes.
Value residual_block(ModuleContext& context, Value x, const ResidualOptions& options);

}  // namespace ridge::nn
