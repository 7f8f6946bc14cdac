// Batch norm and its gradient, channel by channel. The variance comes from the centred elements in
// a second pass, and nothing is rounded before the end.
#include "ridge/graph/ops/batch_norm.h"

#include <cmath>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

double apply(NormActivation activation, double z) {
  if (activation == NormActivation::kNone || std::isnan(z)) return z;
  const double positive = z > 0.0 ? z : 0.0;
  return activation == NormActivation::kRelu6 && positive > 6.0 ? 6.0 : positive;
}

bool lets_through(NormActivation activation, double z) {
  if (activation == NormActivation::kNone) return true;
  return z > 0.0 && (activation == NormActivation::kRelu || z < 6.0);
}

// Mean and biased variance of each channel of x.
struct Moments {
  Moments(const std::vector<double>& x, size_t channels) : means(channels), variances(channels) {
    const auto n = static_cast<double>(x.size() / channels);
    for (size_t c = 0; c < channels; ++c) {
      double &mean = means[c], &variance = variances[c];
      for (size_t i = c; i < x.size(); i += channels) mean += x[i];
      mean /= n;
      for (size_t i = c; i < x.size(); i += channels) variance += (x[i] - mean) * (x[i] - mean);
      variance /= n;
    }
  }
  std::vector<double> means, variances;
};

void batch_norm(const BatchNorm& op, const Call& call) {
  std::vector<double> x = call.read<double>(0);
  const std::vector<double> gamma = call.read<double>(1), beta = call.read<double>(2);
  const NormActivation activation = norm_activation(op.activation, "batch_norm");
  const size_t channels = gamma.size();
  const Moments of(x, channels);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t c = i % channels;
    const double normal = (x[i] - of.means[c]) / std::sqrt(of.variances[c] + op.eps);
    x[i] = apply(activation, normal * gamma[c] + beta[c]);
  }
  call.write(0, x);
  call.write(1, of.means);
  call.write(2, of.variances);
}

void batch_norm_stats(const BatchNormStats& op, const Call& call) {
  std::vector<double> scales = call.read<double>(1);
  const Moments of(call.read<double>(0), scales.size());
  for (size_t c = 0; c < scales.size(); ++c) scales[c] /= std::sqrt(of.variances[c] + op.eps);
  call.write(0, of.means);
  call.write(1, of.variances);
  call.write(2, scales);
  call.write(3, call.read<double>(2));
}

void batch_norm_grad(const BatchNormGrad& op, const Call& call) {
  std::vector<double> x = call.read<double>(0), dy = call.read<double>(5);
  const std::vector<double> gamma = call.read<double>(1), beta = call.read<double>(2);
  const std::vector<double> mean = call.read<double>(3), variance = call.read<double>(4);
  const NormActivation activation = norm_activation(op.activation, "batch_norm_grad");
  const size_t channels = gamma.size();
  const auto n = static_cast<double>(x.size() / channels);
  std::vector<double> dgamma(channels), dbeta(channels);
  for (size_t c = 0; c < channels; ++c) {
    const double deviation = std::sqrt(variance[c] + op.eps);
    for (size_t i = c; i < x.size(); i += channels) {
      x[i] = (x[i] - mean[c]) / deviation;
      if (!lets_through(activation, x[i] * gamma[c] + beta[c])) dy[i] = 0.0;
      dgamma[c] += dy[i] * x[i];
      dbeta[c] += dy[i];
    }
    for (size_t i = c; i < x.size(); i += channels)
      x[i] = (dy[i] - dbeta[c] / n - x[i] * dgamma[c] / n) * gamma[c] / deviation;
  }
  call.write(0, x);
  call.write(1, dgamma);
  call.write(2, dbeta);
}

}  // namespace

void add_batch_norm_kernels(KernelTable& table) {
  add_kernel<BatchNorm>(table, batch_norm);
  add_kernel<BatchNormGrad>(table, batch_norm_grad);
  add_kernel<BatchNormStats>(table, batch_norm_stats);
}

}  // namespace ridge::ref
