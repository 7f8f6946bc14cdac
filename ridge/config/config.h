// The options of a training run as a struct; text.h reads it from TOML and prints it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "ridge/base/capture.h"
#include "ridge/base/named_enum.h"
#include "ridge/data/options.h"
#include "ridge/nn/options.h"

namespace ridge {

/// The numbers that matrix products and convolutions compute in.
enum class Precision : uint8_t { kF32, kTf32, kBf16, kFp16 };
constexpr std::string_view names_of(Precision) { return "f32|tf32|bf16|fp16"; }

/// The range of kernels from which time picks: see kernels_of() in train/task.h.
enum class KernelsChoice : uint8_t { kAuto, kSameBits, kFastest };
constexpr std::string_view names_of(KernelsChoice) { return "auto|same_bits|fastest"; }

struct RunOptions {
  uint64_t seed = 0;  ///< Seed of initial weights, order of samples, dropout, augmentation.
  std::string out;    ///< Folder of checkpoints and metrics; empty: nothing is written.
  std::string device = "cpu";
  Precision precision = Precision::kF32;  ///< f64 is model.dtype's.
  int64_t loss_scale = 65536;             ///< Loss scale of fp16 at the start: a power of two.
  std::vector<std::string>
      f32_modules;     ///< "blocks.0.attn": they keep f32 where `precision` is lower.
  int64_t batch = 64;  ///< Samples a step.
  int64_t micro = 1;   ///< Micro-batches a step; where they do not divide `batch`, sizes differ
                       ///< by at most one.
  int64_t loss_chunks = 1;   ///< Parts of the targets that logits exist for at a time.
  int64_t memory_limit = 0;  ///< MiB that the plan may need: see memory_limit.h; 0: any number.
  int64_t epochs = 0;        ///< One of `epochs` and `steps` is above 0.
  int64_t steps = 0;         ///< Above 0: decides, whatever `epochs` says.
  int64_t eval_every = 0;    ///< Steps between evaluations; 0: after each epoch.
  int64_t eval_batch = 0;    ///< Samples at a time in evaluation; 0: as a micro-batch.
  bool shuffle = true;       ///< Another order of the samples each epoch.
  bool drop_last = false;    ///< Leave out the last batch of an epoch where it is not full.
  Capture capture = Capture::kAuto;  ///< Launch what a step computes as one piece.
  KernelsChoice kernels = KernelsChoice::kAuto;

  /// Whether `device` asks for a GPU, be there one or not; make_backend knows which there are.
  bool is_on_gpu() const { return device.starts_with("cuda"); }
};

struct CheckpointOptions {
  int64_t every = 0;  ///< Steps between checkpoints; 0: only at the end and when stopped.
  int64_t keep = 2;   ///< Newest checkpoints that stay.
  bool best = false;  ///< Also keep the one of the best evaluation.
};

struct MetricsOptions {
  int64_t every = 1;  ///< Steps from one line to the next.
};

struct TrainConfig {
  nn::ModelOptions model;
  nn::OptimizerOptions optimizer;
  nn::ScheduleOptions schedule;
  data::DataOptions data;
  data::LoaderOptions loader;
  RunOptions train;
  MetricsOptions metrics;
  CheckpointOptions checkpoint;
};

}  // namespace ridge
