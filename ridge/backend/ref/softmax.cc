// Softmax, log-softmax and cross-entropy, row by row.
#include "ridge/graph/ops/softmax.h"

#include <cmath>
#include <span>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"
#include "ridge/backend/ref/walk.h"

namespace ridge::ref {
namespace {

// Replaces each row of x (..., C) by f of it.
template <typename F>
void map_rows(const Call& call, F f) {
  std::vector<double> x = call.read<double>(0);
  const auto width = static_cast<size_t>(call.inputs[0].shape.back());
  for (size_t begin = 0; begin < x.size(); begin += width) f(std::span(x).subspan(begin, width));
  call.write(0, x);
}

double largest(std::span<const double> row) {
  double best = row[0];
  for (double x : row)
    if (is_larger(x, best)) best = x;
  return best;
}

void softmax_row(std::span<double> row) {
  const double max = largest(row);
  double sum = 0.0;
  for (double& x : row) sum += x = std::exp(x - max);
  for (double& x : row) x /= sum;
}

void log_softmax_row(std::span<double> row) {
  const double max = largest(row);
  double sum = 0.0;
  for (double x : row) sum += std::exp(x - max);
  for (double& x : row) x = x - max - std::log(sum);
}

// A term whose weight is 0 is left out: its logarithm may be infinite.
double smoothed_loss(std::span<const double> log_p, size_t target, double smoothing) {
  double loss = 0.0;
  if (smoothing != 1.0) loss -= (1.0 - smoothing) * log_p[target];
  if (smoothing != 0.0) {
    double sum = 0.0;
    for (double each : log_p) sum += each;
    loss -= smoothing / static_cast<double>(log_p.size()) * sum;
  }
  return loss;
}

void cross_entropy(const CrossEntropy& op, const Call& call) {
  std::vector<double> logits = call.read<double>(0);
  const std::vector<int64_t> targets = call.read<int64_t>(1);
  const int64_t classes = call.inputs[0].shape.back();
  std::vector<double> loss(targets.size(), 0.0);
  for (size_t i = 0; i < targets.size(); ++i) {
    if (targets[i] == op.ignore_index) continue;
    check(targets[i] >= 0 && targets[i] < classes,
          "[cross_entropy] target {} at {} is no class; expected 0 to {}, or {} to ignore the row",
          targets[i],
          to_string(index_of(static_cast<int64_t>(i), call.inputs[1].shape)),
          classes - 1,
          op.ignore_index);
    const auto width = static_cast<size_t>(classes);
    const std::span<double> row = std::span(logits).subspan(i * width, width);
    log_softmax_row(row);
    loss[i] = smoothed_loss(row, static_cast<size_t>(targets[i]), op.label_smoothing);
  }
  call.write(0, loss);
}

}  // namespace

void add_softmax_kernels(KernelTable& table) {
  add_kernel<Softmax>(table, [](const Softmax&, const Call& call) { map_rows(call, softmax_row); });
  add_kernel<LogSoftmax>(
      table, [](const LogSoftmax&, const Call& call) { map_rows(call, log_softmax_row); });
  add_kernel<CrossEntropy>(table, cross_entropy);
}

}  // namespace ridge::ref
