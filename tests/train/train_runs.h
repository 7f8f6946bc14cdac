// Small training runs for tests.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ridge/train/train.h"

namespace ridge::test {

/// An observer made of functions.
class Watch : public TrainObserver {
 public:
  std::function<void(const StepReport&)> step;
  std::vector<std::string> messages;
  std::vector<double> losses;

  Watch() { losses.reserve(1 << 16); }
  void on_step(const StepReport& report) override {
    losses.push_back(report.loss);
    if (step) step(report);
  }
  void on_message(std::string_view text) override { messages.emplace_back(text); }
};

/// Tiny models on random data, all with dropout, ragged last batches, warm-up, cosine and clipping.
inline TrainConfig small_config(const std::string& kind) {
  TrainConfig c;
  c.model.kind = parse_name<nn::ModelKind>(kind).value();
  c.model.mlp = {.hidden = {16, 12}, .outputs = 4, .dropout = 0.2};
  c.model.cnn = {.widths = {4, 8}, .blocks = 1, .outputs = 4, .dropout = 0.1};
  c.model.gpt = {.vocab = 11, .context = 8, .layers = 1, .heads = 2, .width = 8, .dropout = 0.1};
  c.data.kind = data::DataKind::kRandom;
  c.data.samples = 150;
  c.data.eval_fraction = 0.1;
  c.data.classes = 4;
  c.data.shape = {20};
  if (kind == "cnn") c.data.shape = {8, 8, 2};
  if (kind == "gpt") {
    c.data.shape = {8};
    c.data.tokens = true;
    c.data.classes = 11;
  }
  c.optimizer.lr = 0.01;
  c.optimizer.clip = 1.0;
  c.schedule = {.kind = nn::ScheduleKind::kCosine, .warmup = 5, .final_ratio = 0.1};
  c.train.seed = 7;
  c.train.batch = 16;
  c.train.steps = 50;
  c.train.drop_last = false;
  c.loader = {.workers = 2, .prefetch = 2};
  return c;
}

inline TrainResult run_small(const TrainConfig& config, Watch& watch) {
  TrainRequest request;
  request.config = config;
  return train(request, watch);
}

inline TrainResult run_small(const TrainConfig& config) {
  Watch watch;
  return run_small(config, watch);
}

}  // namespace ridge::test
