// Activations, in the forms that do not cancel for large negative x.
#include "ridge/graph/ops/activation.h"

#include <cmath>
#include <numbers>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

// Adds op T as f(op, x) of each element.
template <typename T, typename F>
void add_activation(KernelTable& table, F f) {
  add_kernel<T>(table, [f](const T& op, const Call& call) {
    std::vector<double> x = call.read<double>(0);
    for (double& each : x) each = f(op, each);
    call.write(0, x);
  });
}

double logistic(double x) {
  const double e = std::exp(-std::fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}

// 1 + erf(z) = erfc(-z), and 0.5 (1 + tanh(z)) = logistic(2 z).
double gelu_of(const Gelu& op, double x) {
  if (!op.tanh) return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  const double sqrt_two_over_pi = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;
  return x * logistic(2.0 * sqrt_two_over_pi * (x + 0.044715 * x * x * x));
}

}  // namespace

void add_activation_kernels(KernelTable& table) {
  add_activation<Sigmoid>(table, [](const Sigmoid&, double x) { return logistic(x); });
  add_activation<Relu>(table, [](const Relu&, double x) { return is_larger(x, 0.0) ? x : 0.0; });
  add_activation<Gelu>(table, gelu_of);
  add_activation<Silu>(table, [](const Silu&, double x) { return x * logistic(x); });
}

}  // namespace ridge::ref
