// Matrix product of bytes.
#include "ridge/graph/ops/matmul_i8.h"

#include "ridge/backend/ref/product_i8.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

void matmul_i8(const MatMulI8& op, const Call& call) {
  const Shape &shape_a = call.inputs[MatMulI8::kA].shape, &shape_y = call.outputs[0].shape;
  const auto m = static_cast<size_t>(shape_y.end()[-2]), n = static_cast<size_t>(shape_y.back());
  const auto k = static_cast<size_t>(shape_a.end()[op.transpose_a ? -2 : -1]);
  const auto a = call.read<int64_t>(MatMulI8::kA), b = call.read<int64_t>(MatMulI8::kB);
  const auto a_zero = call.read<int64_t>(MatMulI8::kAZero);
  const auto b_zero = call.read<int64_t>(MatMulI8::kBZero);
  const ResultsI8 results(op, call);
  std::vector<double> y = call.zeros<double>(0);
  const bool shares_b = call.inputs[MatMulI8::kB].rank() == 2;
  for (size_t at = 0; at < y.size(); ++at) {
    const size_t item = at / (m * n), i = at / n % m, j = at % n;
    const int64_t* const from_a = &a[item * m * k];
    const int64_t* const from_b = &b[shares_b ? 0 : item * k * n];
    int64_t sum = 0;
    for (size_t p = 0; p < k; ++p)
      sum += (from_a[op.transpose_a ? p * m + i : i * k + p] - lane(a_zero, i)) *
             (from_b[op.transpose_b ? j * k + p : p * n + j] - lane(b_zero, j));
    y[at] = results.of(sum, j);
  }
  call.write(0, y);
}

}  // namespace

void add_matmul_i8_kernels(KernelTable& table) { add_kernel<MatMulI8>(table, matmul_i8); }

}  // namespace ridge::ref
