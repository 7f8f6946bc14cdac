// Matrix products of bytes as lone nodes, for tests of cuBLASLt's on the stand-in and on the
// simulated GPU.
#pragma once

#include <limits>
#include <vector>

#include "ridge/graph/ops/matmul_i8.h"
#include "tests/support/case_builder.h"

namespace ridge::test {

/// Sizes, and what a node has besides its factors.
struct ByteProductForm {
  int64_t m = 8, n = 8, k = 8;
  Shape leading = {};
  bool shares_b = true;
  bool transpose_a = false, transpose_b = false;
  DType a = DType::kU8, b = DType::kI8, to = DType::kI32;
  bool has_rows = false, has_columns = false;  ///< A zero point for each row, for each column.
  double least = 0;  ///< Share of the least bytes, where the others are the largest; 0: any bytes.
  DType bias = DType::kBool;  ///< kBool: none.
  bool scales_columns = false, is_infinite = false;
  std::vector<int64_t> limits = {};
};

inline int64_t least_byte(DType dtype) { return dtype == DType::kI8 ? -128 : 0; }

inline Value bytes_of(CaseBuilder& b, DType dtype, const Shape& shape, double share = 0) {
  const int64_t least = least_byte(dtype);
  if (share == 0) return b.indices(dtype, shape, least, least + 255);
  std::vector<double> ends(static_cast<size_t>(numel(shape)));
  for (double& end : ends) end = static_cast<double>(least + (b.random().chance(share) ? 0 : 255));
  return b.given({dtype, shape}, ends);
}

inline CaseBuilder byte_product_case(const ByteProductForm& f, uint64_t seed = 3) {
  CaseBuilder b(f.a, seed);
  MatMulI8 op;
  op.transpose_a = f.transpose_a, op.transpose_b = f.transpose_b;
  op.to = f.to, op.limits = f.limits;
  const auto with = [&](bool has_leading, int64_t rows, int64_t columns) {
    Shape shape = has_leading ? f.leading : Shape{};
    shape.insert(shape.end(), {rows, columns});
    return shape;
  };
  std::vector<Value> inputs;
  inputs.push_back(
      bytes_of(b, f.a, f.transpose_a ? with(true, f.k, f.m) : with(true, f.m, f.k), f.least));
  inputs.push_back(bytes_of(
      b, f.b, f.transpose_b ? with(!f.shares_b, f.n, f.k) : with(!f.shares_b, f.k, f.n), f.least));
  inputs.push_back(bytes_of(b, f.a, f.has_rows ? Shape{f.m} : Shape{}));
  inputs.push_back(bytes_of(b, f.b, f.has_columns ? Shape{f.n} : Shape{}));
  if (op.is_scaled()) {
    const Shape scales = f.scales_columns ? Shape{f.n} : Shape{};
    inputs.push_back(f.is_infinite
                         ? b.given({DType::kF32, {}}, {std::numeric_limits<double>::infinity()})
                         : b.input(DType::kF32, scales, -2e-3, 4e-3));
  }
  if (op.is_rounded()) inputs.push_back(bytes_of(b, f.to, {}));
  if (op.is_scaled() && f.bias == DType::kI32)
    inputs.push_back(b.indices(f.bias, {f.n}, -60'000, 60'000));
  if (op.is_scaled() && f.bias == DType::kF32) inputs.push_back(b.input(f.bias, {f.n}, -50, 50));
  b.finish({add_node(std::move(op), inputs)});
  return b;
}

inline ByteProductForm random_byte_product(uint64_t seed) {
  Random random(seed);
  constexpr DType kResults[] = {DType::kI32, DType::kF32, DType::kI8, DType::kU8};
  constexpr DType kBiases[] = {DType::kBool, DType::kF32, DType::kI32};
  const auto byte = [&] { return random.chance(0.5) ? DType::kI8 : DType::kU8; };
  ByteProductForm f{.m = random.chance(0.2) ? 1 : random.integer(1, 40),
                    .n = random.integer(1, 40),
                    .k = random.integer(2, random.chance(0.1) ? 900 : 70)};
  // Sides that the library reads as they are.
  if (random.chance(0.5)) f.n = (f.n + 3) / 4 * 4;
  if (random.chance(0.5)) f.k = (f.k + 3) / 4 * 4;
  if (random.chance(0.4)) f.leading = {random.integer(1, 3), random.integer(1, 3)};
  f.shares_b = f.leading.empty() || random.chance(0.5);
  f.transpose_a = random.chance(0.3), f.transpose_b = random.chance(0.5);
  f.a = byte(), f.b = byte(), f.to = kResults[random.integer(0, 3)];
  f.has_rows = random.chance(0.3), f.has_columns = random.chance(0.5);
  f.least = random.chance(0.2) ? 0.8 : 0;
  f.bias = kBiases[random.integer(0, 2)];
  f.scales_columns = random.chance(0.5), f.is_infinite = random.chance(0.05);
  if (size_of(f.to) == 1 && random.chance(0.3)) {
    const int64_t low = least_byte(f.to) + random.integer(0, 200);
    f.limits = {low, random.integer(low, least_byte(f.to) + 255)};
  }
  return f;
}

}  // namespace ridge::test
