// Norms that are stored past the caches have the bits of those that are not, wherever rows begin.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "ridge/backend/cpu/cpu_isa.h"
#include "ridge/backend/cpu/isa/norm_kernels.h"
#include "ridge/base/dtype.h"

namespace ridge::cpu {
namespace {

template <typename T>
void expect_same(NormKernel run, int64_t n, size_t offset) {
  constexpr int64_t kRows = 5;
  std::mt19937 random(static_cast<unsigned>(n));
  std::normal_distribution<T> normal(100, 1);
  const auto made = [&](int64_t count) {
    std::vector<T> x(static_cast<size_t>(count));
    for (T& each : x) each = normal(random);
    return x;
  };
  const std::vector<T> x = made(kRows * n), gamma = made(n), beta = made(n);
  // One element more than is written: it has to stay.
  std::vector<T> plain(x.size() + offset + 1, T(7)), streamed = plain;
  NormRows rows{x.data(), gamma.data(), beta.data(), plain.data() + offset, n, 1e-5, false};
  run(rows, 0, kRows);
  rows.y = streamed.data() + offset;
  rows.streamed = true;
  run(rows, 0, kRows);
  EXPECT_EQ(std::memcmp(plain.data(), streamed.data(), plain.size() * sizeof(T)), 0)
      << "n " << n << ", offset " << offset;
  EXPECT_EQ(streamed.back(), T(7));
}

TEST(NormStream, BitsAreThoseOfOrdinaryStores) {
  for (const Isa isa : kAllIsas) {
    if (!has_isa(isa)) continue;
    const RowNormKernels& kernels =
        isa == Isa::kAvx2 ? avx2::row_norm_kernels : avx512::row_norm_kernels;
    for (const int64_t n : {1, 15, 64, 768, 1001, 5000})
      for (const size_t offset : {0, 1, 7, 16}) {
        expect_same<double>(kernels.layer_norm[static_cast<int>(DType::kF64)], n, offset);
        expect_same<float>(kernels.layer_norm[static_cast<int>(DType::kF32)], n, offset);
        expect_same<float>(kernels.rms_norm[static_cast<int>(DType::kF32)], n, offset);
      }
  }
}

}  // namespace
}  // namespace ridge::cpu
