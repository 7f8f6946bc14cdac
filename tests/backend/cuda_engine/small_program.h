// A program that trains: a softmax classifier whose scores are sums of products, with a momentum,
// an entry that adds up gradients and one that applies them. Its ops all give the CPU's bits.
#pragma once

#include <random>

#include "ridge/graph/autodiff.h"
#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/gather.h"
#include "ridge/graph/ops/reduce.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/softmax.h"
#include "ridge/graph/ops/source.h"
#include "ridge/run/evaluate.h"
#include "ridge/run/program.h"

namespace ridge::test {

inline constexpr int64_t kSamples = 12, kFeatures = 20, kClasses = 5;

/// Entries "micro" (x, y -> loss; adds to the gradient) and "apply" (hyper: the learning rate).
inline ProgramGraphs small_program() {
  const TensorType weights{DType::kF32, {kClasses, kFeatures}};
  ProgramGraphs graphs;
  graphs.state = {{"w", weights, StateRole::kParameter},
                  {"momentum", weights, StateRole::kOptimizer},
                  {"gradient", weights, StateRole::kGradient}};

  Graph micro("micro");
  const Value x = input(micro, "x", {DType::kF32, {kSamples, kFeatures}}, 0);
  const Value y = input(micro, "y", {DType::kI64, {kSamples}}, 0);
  const Value w = input(micro, "w", weights);
  const Value sum = input(micro, "gradient", weights);
  const Shape all{kSamples, kClasses, kFeatures};
  const Value products = mul(broadcast(reshape(x, {kSamples, 1, kFeatures}), all),
                             broadcast(reshape(w, {1, kClasses, kFeatures}), all));
  const Value logits = tanh(reduce_sum(products, {2}));
  const Value loss = reduce_mean(neg(pick(log_softmax(logits), y)));
  const Value dw = gradients(loss, std::vector<Value>{w})[0];
  micro.add_output("loss", loss);
  micro.add_output("gradient.new", add(sum, dw), "gradient");
  graphs.entries.push_back(std::move(micro));

  Graph apply("apply");
  const Value rate = input(apply, "hyper", {DType::kF32, {1}});
  const Value p = input(apply, "w", weights);
  const Value m = input(apply, "momentum", weights);
  const Value g = input(apply, "gradient", weights);
  const Value moved = add(mul(m, constant_like(m, 0.9)), g);
  apply.add_output("norm", sqrt(reduce_sum(mul(g, g))));
  apply.add_output(
      "w.new", sub(p, mul(moved, broadcast(reshape(rate, {1, 1}), weights.shape))), "w");
  apply.add_output("momentum.new", moved, "momentum");
  apply.add_output("gradient.zero", constant_like(g, 0.0), "gradient");
  graphs.entries.push_back(std::move(apply));
  return graphs;
}

/// What steps of it leave and said.
struct SmallRun {
  std::vector<float> losses, norms;
  NamedTensors state;
};

/// Steps of two parts each, of data drawn by the number of the step. The host's memory is written
/// over as soon as it may be.
class SmallTraining {
 public:
  explicit SmallTraining(Backend& backend, const ProgramOptions& options = {})
      : program_(small_program(), backend, options),
        x_({DType::kF32, {kSamples, kFeatures}}),
        y_({DType::kI64, {kSamples}}),
        rate_({DType::kF32, {1}}),
        micro_(program_.entry("micro")),
        apply_(program_.entry("apply")) {
    for (const char* name : {"w", "momentum", "gradient"}) {
      Tensor tensor({DType::kF32, {kClasses, kFeatures}});
      std::mt19937_64 random(3);
      if (std::string_view(name) == "w")
        for (float& each : tensor.span<float>()) each = unit(random);
      program_.state().write(name, tensor);
    }
  }

  void queue_step(int64_t step) {
    for (int64_t part = 0; part < 2; ++part) {
      std::mt19937_64 random(static_cast<uint64_t>(10 * step + part));
      for (float& each : x_.span<float>()) each = unit(random);
      for (int64_t& each : y_.span<int64_t>()) each = static_cast<int64_t>(random() % kClasses);
      if (step == wrong_step_ && part == 1) y_.span<int64_t>()[7] = -3;
      program_.write(program_.input(micro_, "x"), x_.data());
      program_.write(program_.input(micro_, "y"), y_.data());
      program_.run(micro_);
    }
    rate_.set(0, 0.5 / static_cast<double>(1 + step));
    program_.write(program_.input(apply_, "hyper"), rate_.data());
    program_.run(apply_);
  }

  /// Loss of the last part and norm of the gradient; waits.
  void read(SmallRun& run) {
    float loss = 0, norm = 0;
    program_.read(program_.output(micro_, "loss"), &loss);
    program_.read(program_.output(apply_, "norm"), &norm);
    program_.synchronize();
    run.losses.push_back(loss);
    run.norms.push_back(norm);
  }

  SmallRun run(int64_t steps) {
    SmallRun done;
    for (int64_t step = 0; step < steps; ++step) {
      queue_step(step);
      if (step % 2 == 1) read(done);
    }
    for (const char* name : {"w", "momentum", "gradient"})
      done.state.emplace(name, program_.state().read(name));
    return done;
  }

  /// In this step an index is no class.
  void set_wrong_step(int64_t step) { wrong_step_ = step; }
  Program& program() { return program_; }

 private:
  static float unit(std::mt19937_64& random) {
    return static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  }

  Program program_;
  Tensor x_, y_, rate_;
  size_t micro_, apply_;
  int64_t wrong_step_ = -1;
};

}  // namespace ridge::test
