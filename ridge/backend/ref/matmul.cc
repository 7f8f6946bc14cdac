// Matrix product.
#include "ridge/graph/ops/matmul.h"

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

std::vector<double> operand(const MatMul& op, const Call& call, size_t input) {
  std::vector<double> values = call.read<double>(input);
  if (op.round_to == DType::kBF16)
    for (double& x : values) x = static_cast<double>(convert<BF16>(x));
  if (op.round_to == DType::kF16)
    for (double& x : values) x = static_cast<double>(convert<F16>(x));
  return values;
}

void matmul(const MatMul& op, const Call& call) {
  const Shape& shape_a = call.inputs[0].shape;
  const Shape& shape_y = call.outputs[0].shape;
  const auto rank = shape_y.size();
  const auto m = static_cast<size_t>(shape_y[rank - 2]), n = static_cast<size_t>(shape_y[rank - 1]);
  const auto k = static_cast<size_t>(shape_a[rank - (op.transpose_a ? 2 : 1)]);
  const size_t row_a = op.transpose_a ? 1 : k, inner_a = op.transpose_a ? m : 1;
  const size_t inner_b = op.transpose_b ? 1 : n, column_b = op.transpose_b ? k : 1;

  const std::vector<double> a = operand(op, call, 0), b = operand(op, call, 1);
  std::vector<double> y = call.zeros<double>(0);
  const size_t batches = y.size() / (m * n);
  for (size_t batch = 0; batch < batches; ++batch)
    for (size_t row = 0; row < m; ++row)
      for (size_t column = 0; column < n; ++column) {
        const double* from_a = &a[batch * m * k + row * row_a];
        const double* from_b = &b[batch * k * n + column * column_b];
        double sum = 0.0;
        for (size_t i = 0; i < k; ++i) sum += from_a[i * inner_a] * from_b[i * inner_b];
        y[(batch * m + row) * n + column] = sum;
      }
  call.write(0, y);
}

}  // namespace

void add_matmul_kernels(KernelTable& table) { add_kernel<MatMul>(table, matmul); }

}  // namespace ridge::ref
