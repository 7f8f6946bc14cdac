// Matrix product of bytes.
#include "ridge/graph/ops/matmul_i8.h"

#include <algorithm>
#include <cmath>

#include "ridge/backend/ref/kernel.h"
#include "ridge/backend/ref/ref_kernels.h"

namespace ridge::ref {
namespace {

// One number for all lanes, or one for each.
template <typename V>
V lane(const std::vector<V>& values, size_t i) {
  return values[values.size() > 1 ? i : 0];
}

double rounded(float x, int64_t zero, DType to) {
  if (std::isnan(x)) return 0;
  const double least = to == DType::kI8 ? -128 : 0;
  const double whole = std::nearbyint(static_cast<double>(x)) + static_cast<double>(zero);
  return std::clamp(whole, least, least + 255);
}

void matmul_i8(const MatMulI8& op, const Call& call) {
  const Shape &shape_a = call.inputs[MatMulI8::kA].shape, &shape_y = call.outputs[0].shape;
  const auto m = static_cast<size_t>(shape_y.end()[-2]), n = static_cast<size_t>(shape_y.back());
  const auto k = static_cast<size_t>(shape_a.end()[op.transpose_a ? -2 : -1]);
  const auto a = call.read<int64_t>(MatMulI8::kA), b = call.read<int64_t>(MatMulI8::kB);
  const auto a_zero = call.read<int64_t>(MatMulI8::kAZero);
  const auto b_zero = call.read<int64_t>(MatMulI8::kBZero);
  std::vector<double> scale, bias;
  std::vector<int64_t> zero{0};
  if (op.is_scaled()) scale = call.read<double>(MatMulI8::kScale);
  if (op.is_rounded()) zero = call.read<int64_t>(MatMulI8::kZero);
  if (op.is_scaled() && call.inputs.size() > op.bias()) bias = call.read<double>(op.bias());
  std::vector<double> y = call.zeros<double>(0);
  const bool shares_b = call.inputs[MatMulI8::kB].rank() == 2;
  for (size_t at = 0; at < y.size(); ++at) {
    const size_t item = at / (m * n), i = at / n % m, j = at % n;
    const int64_t* const from_a = &a[item * m * k];
    const int64_t* const from_b = &b[shares_b ? 0 : item * k * n];
    int64_t wide = 0;
    for (size_t p = 0; p < k; ++p)
      wide += (from_a[op.transpose_a ? p * m + i : i * k + p] - lane(a_zero, i)) *
              (from_b[op.transpose_b ? j * k + p : p * n + j] - lane(b_zero, j));
    const auto sum = static_cast<int32_t>(static_cast<uint32_t>(wide));
    y[at] = sum;
    if (!op.is_scaled()) continue;
    float x = static_cast<float>(sum) * static_cast<float>(lane(scale, j));
    if (!bias.empty()) x += static_cast<float>(bias[j]);
    y[at] = op.is_rounded() ? rounded(x, zero[0], op.to) : static_cast<double>(x);
  }
  call.write(0, y);
}

}  // namespace

void add_matmul_i8_kernels(KernelTable& table) { add_kernel<MatMulI8>(table, matmul_i8); }

}  // namespace ridge::ref
