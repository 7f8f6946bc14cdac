#include "ridge/tune/engine/technique_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace ridge {
namespace {

// Steps that must be left, of an epoch and of the run. With fewer, a batch is more than 1 % of the
// data: the noise from sample to sample, which a larger batch averages, is mostly gone already, and
// the schedule moves in jumps of 1 %.
constexpr int64_t kLeastSteps = 100;

constexpr int64_t kMostBatch = int64_t{1} << 20;  // as train.batch allows

class Growing {
 public:
  Growing(const TrainConfig& config, double factor) : config_(config), factor_(factor) {}

  void change_batch(int64_t growth) {
    set("train.batch", config_.train.batch * growth);
    // Parts are there for the memory's sake: they keep their size.
    if (config_.train.micro > 1) set("train.micro", config_.train.micro * growth);
  }
  std::vector<ConfigFlag> changes() {
    change_optimizer();
    change_statistics();
    change_steps();
    return std::move(changes_);
  }

 private:
  void set(std::string key, int64_t value) {
    changes_.push_back({std::move(key), fmt::format("{}", value), "ridge optimize"});
  }
  void set(std::string key, double value) {
    changes_.push_back({std::move(key), fmt::format("{:.6g}", value), "ridge optimize"});
  }
  // A mean that keeps a share `decay` at every step keeps as much of it sample by sample.
  void set_decay(std::string key, double decay) {
    if (decay > 0) set(std::move(key), std::pow(decay, factor_));
  }

  // SGD: the mean gradient of a batch that is k times as large moves k times as far, as k steps did
  // (Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014; Goyal et
  // al., "Accurate, large minibatch SGD", 2017); momentum stays. Adam divides by the size of the
  // gradient, which is mostly noise: its learning rate goes with sqrt(k), its means keep what they
  // kept by samples (Malladi et al., "On the SDEs and scaling rules for adaptive gradient
  // algorithms", 2022). The decay of weights, lr * weight_decay a step, stays the same by samples.
  void change_optimizer() {
    const nn::OptimizerOptions& optimizer = config_.optimizer;
    if (optimizer.kind == nn::OptimizerKind::kSgd)
      return set("optimizer.lr", optimizer.lr * factor_);
    const double root = std::sqrt(factor_);
    set("optimizer.lr", optimizer.lr * root);
    set_decay("optimizer.beta1", optimizer.beta1);
    set_decay("optimizer.beta2", optimizer.beta2);
    if (optimizer.weight_decay > 0) set("optimizer.weight_decay", optimizer.weight_decay * root);
  }

  // Running statistics of batch norm take in a batch with the weight `momentum`.
  void change_statistics() {
    const nn::ModelOptions& model = config_.model;
    double momentum = 0;
    if (model.kind == nn::ModelKind::kCnn && model.cnn.batch_norm) momentum = model.cnn.momentum;
    if (model.kind == nn::ModelKind::kResNet18) momentum = model.resnet18.momentum;
    if (model.kind == nn::ModelKind::kMobileNetV2) momentum = model.mobilenetv2.momentum;
    if (momentum > 0) set("model.momentum", 1 - std::pow(1 - momentum, factor_));
  }

  // Rounded so that no run becomes shorter, and no warm-up.
  void change_steps() {
    const auto fewer = [this](const char* key, int64_t steps) {
      if (steps > 0)
        set(key, static_cast<int64_t>(std::ceil(static_cast<double>(steps) / factor_)));
    };
    fewer("schedule.warmup", config_.schedule.warmup);
    fewer("train.steps", config_.train.steps);
    fewer("train.eval_every", config_.train.eval_every);
    fewer("checkpoint.every", config_.checkpoint.every);
  }

  const TrainConfig& config_;
  double factor_;
  std::vector<ConfigFlag> changes_;
};

}  // namespace

std::vector<ConfigFlag> grown_batch(const TrainConfig& config, int64_t growth) {
  Growing growing(config, static_cast<double>(growth));
  growing.change_batch(growth);
  return growing.changes();
}

std::vector<ConfigFlag> grown_steps(const TrainConfig& config, double growth) {
  return Growing(config, growth).changes();
}

std::string too_few_steps(const Situation& s, double growth) {
  // Of an epoch, or of the run where that is shorter.
  const int64_t run = s.config.train.steps;
  const int64_t steps = run > 0 ? std::min(s.epoch_steps, run) : s.epoch_steps;
  const auto left = static_cast<int64_t>(static_cast<double>(steps) / growth);
  if (left >= kLeastSteps) return {};
  return fmt::format("{:.3g} times the batch would leave {} steps an epoch or a run, fewer than {}",
                     growth,
                     left,
                     kLeastSteps);
}

Proposals propose_batch(const Situation& s) {
  Proposals proposals;
  for (int64_t growth = 2; growth <= kMostGrowth; growth *= 2) {
    std::string reason;
    if (s.config.train.batch > kMostBatch / growth)
      reason = fmt::format("a batch of {} samples is the largest there is", s.config.train.batch);
    else if (static_cast<double>(growth) > s.batch_room)
      reason = fmt::format("{} times the batch does not fit into free memory", growth);
    else
      reason = too_few_steps(s, static_cast<double>(growth));
    if (!reason.empty()) {
      if (proposals.tries.empty()) proposals.reason = std::move(reason);
      break;
    }
    proposals.tries.push_back({.changes = grown_batch(s.config, growth),
                               .semantic_class = SemanticClass::kTrajectory,
                               .hypothesis = "a step costs less a sample, and there are fewer"});
  }
  return proposals;
}

}  // namespace ridge
