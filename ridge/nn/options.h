// The options of models, optimizers and schedules; a configuration file fills these in.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "ridge/base/dtype.h"
#include "ridge/base/named_enum.h"

namespace ridge::nn {

enum class ModelKind : uint8_t { kMlp, kCnn, kResNet18, kMobileNetV2, kGpt };
constexpr std::string_view names_of(ModelKind) { return "mlp|cnn|resnet18|mobilenetv2|gpt"; }

/// ResNets begin with a 3x3 convolution for small images, or a 7x7 one of stride 2 and a max pool.
enum class Stem : uint8_t { kCifar, kImageNet };
constexpr std::string_view names_of(Stem) { return "cifar|imagenet"; }

enum class OptimizerKind : uint8_t { kAdamW, kSgd };
constexpr std::string_view names_of(OptimizerKind) { return "adamw|sgd"; }

enum class ScheduleKind : uint8_t { kConstant, kCosine };
constexpr std::string_view names_of(ScheduleKind) { return "constant|cosine"; }

/// x (B, ...) flattened -> hidden layers with ReLU and dropout -> logits (B, outputs).
struct MlpOptions {
  std::vector<int64_t> hidden{256, 256};
  int64_t outputs = 0;  ///< 0: set by who knows the data.
  double dropout = 0.0;
};

/// x (B, H, W, C) -> a 3x3 stem of stride stem_stride, one stage a width (each after the first
/// halves height and width), `blocks` residual blocks a stage, all with batch norm and ReLU -> mean
/// over the image -> dropout
/// -> logits (B, outputs).
struct CnnOptions {
  std::vector<int64_t> widths{32, 64};
  int64_t blocks = 1;
  int64_t outputs = 0;  ///< 0: set by who knows the data.
  double dropout = 0.0;
  bool batch_norm = true;
  double momentum = 0.1;  ///< Weight of a batch in the running statistics.
  int64_t stem_stride = 1;
};

/// x (B, H, W, C) -> a stem, four stages of two residual blocks with width, 2, 4 and 8 times width
/// channels, mean over the image -> logits (B, outputs), as He et al., 2016.
struct ResNet18Options {
  int64_t outputs = 0;  ///< 0: set by who knows the data.
  int64_t width = 64;   ///< Channels of the first stage.
  Stem stem = Stem::kCifar;
  double momentum = 0.1;  ///< Weight of a batch in the running statistics.
};

/// x (B, H, W, C) -> inverted residuals with depthwise convolutions (Sandler et al., "MobileNetV2",
/// 2018), mean over the image, dropout -> logits (B, outputs).
struct MobileNetV2Options {
  int64_t outputs = 0;    ///< 0: set by who knows the data.
  double multiplier = 1;  ///< Factor on the channels of every layer.
  double dropout = 0.2;
  double momentum = 0.1;  ///< Weight of a batch in the running statistics.
};

/// Token ids (B, T) -> logits (B, T, vocab): a pre-norm decoder with learned positions, a tanh GELU
/// feed-forward of 4 x width, and the token embedding as the head's weight (Radford et al., 2019).
struct GptOptions {
  int64_t vocab = 256;
  int64_t context = 128;  ///< Longest T.
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t width = 128;
  double dropout = 0.0;
};

struct ModelOptions {
  ModelKind kind = ModelKind::kMlp;
  DType dtype = DType::kF32;
  MlpOptions mlp;
  CnnOptions cnn;
  ResNet18Options resnet18;
  MobileNetV2Options mobilenetv2;
  GptOptions gpt;
};

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::kAdamW;
  double lr = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  ///< AdamW.
  double momentum = 0.9;                          ///< SGD.
  double weight_decay = 0.01;
  double clip = 0.0;  ///< Largest global norm of the gradient; 0 for no limit.
};

/// The factor on the gradient of the loss where products compute in f16; see loss_scale.h.
struct LossScaleOptions {
  double initial = 0.0;            ///< A power of two; 0: by nothing, and nothing is skipped.
  int64_t growth_interval = 2000;  ///< Steps in a row without overflow after which it doubles.
};

/// The learning rate over the steps: a linear warm-up, then constant or a half cosine down to
/// final_ratio of the peak at the last step.
struct ScheduleOptions {
  ScheduleKind kind = ScheduleKind::kConstant;
  int64_t warmup = 0;  ///< Steps.
  double final_ratio = 0.1;
};

}  // namespace ridge::nn
