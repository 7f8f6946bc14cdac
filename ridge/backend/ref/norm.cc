// Layer and root-mean-square norm. The variance comes from the centred elements in a second
// pass, and nothing is rounded before the end.
#include "ridge/graph/ops/norm.h"

#include <cmath>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

struct Moments {
  double mean = 0.0, variance = 0.0;
};

// Mean and biased variance of `count` elements of x.
Moments moments(const double* x, size_t count) {
  Moments m;
  const auto n = static_cast<double>(count);
  for (size_t i = 0; i < count; ++i) m.mean += x[i];
  m.mean /= n;
  for (size_t i = 0; i < count; ++i) {
    const double centred = x[i] - m.mean;
    m.variance += centred * centred;
  }
  m.variance /= n;
  return m;
}

void layer_norm(const LayerNorm& op, const Call& call) {
  std::vector<double> x = call.read<double>(0);
  const std::vector<double> gamma = call.read<double>(1), beta = call.read<double>(2);
  const size_t channels = gamma.size();
  for (size_t row = 0; row < x.size(); row += channels) {
    const Moments m = moments(&x[row], channels);
    for (size_t c = 0; c < channels; ++c)
      x[row + c] = (x[row + c] - m.mean) / std::sqrt(m.variance + op.eps) * gamma[c] + beta[c];
  }
  call.write(0, x);
}

void rms_norm(const RmsNorm& op, const Call& call) {
  std::vector<double> x = call.read<double>(0);
  const std::vector<double> gamma = call.read<double>(1);
  const size_t channels = gamma.size();
  for (size_t row = 0; row < x.size(); row += channels) {
    double square = 0.0;
    for (size_t c = 0; c < channels; ++c) square += x[row + c] * x[row + c];
    const double root = std::sqrt(square / static_cast<double>(channels) + op.eps);
    for (size_t c = 0; c < channels; ++c) x[row + c] = x[row + c] / root * gamma[c];
  }
  call.write(0, x);
}

}  // namespace

void add_norm_kernels(KernelTable& table) {
  add_kernel<LayerNorm>(table, layer_norm);
  add_kernel<RmsNorm>(table, rms_norm);
}

}  // namespace ridge::ref
