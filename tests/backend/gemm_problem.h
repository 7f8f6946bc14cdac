// The problems of the tests of matrix products: operands at random, and memory that ends at a page
// without access.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "ridge/backend/cpu/gemm/gemm.h"

namespace ridge::cpu {

using Random = std::mt19937_64;

template <typename T>
std::vector<T> random_values(int64_t count, Random& random) {
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<T> values(static_cast<size_t>(count));
  for (T& x : values) x = static_cast<T>(uniform(random));
  return values;
}

/// Elements from the first to the last of a matrix; the last row has no padding.
inline int64_t size_a(const GemmShape& s) {
  return ((s.transpose_a ? s.k : s.m) - 1) * s.lda + (s.transpose_a ? s.m : s.k);
}
inline int64_t size_b(const GemmShape& s) {
  return ((s.transpose_b ? s.n : s.k) - 1) * s.ldb + (s.transpose_b ? s.k : s.n);
}
inline int64_t size_c(const GemmShape& s) { return (s.m - 1) * s.ldc + s.n; }

template <typename T>
struct GemmProblem {
  GemmShape s;
  std::vector<T> a, b, c;

  GemmProblem(const GemmShape& shape, Random& random)
      : s(shape),
        a(random_values<T>(size_a(s), random)),
        b(random_values<T>(size_b(s), random)),
        c(random_values<T>(size_c(s), random)) {}

  /// Elements of the operands as they are multiplied, and of C as it was.
  T left(int64_t i, int64_t p) const {
    return a[static_cast<size_t>(s.transpose_a ? p * s.lda + i : i * s.lda + p)];
  }
  T right(int64_t p, int64_t j) const {
    return b[static_cast<size_t>(s.transpose_b ? j * s.ldb + p : p * s.ldb + j)];
  }
  T old(int64_t i, int64_t j) const { return c[static_cast<size_t>(i * s.ldc + j)]; }
  std::vector<T> result(bool accumulate) const {
    std::vector<T> out = c;
    std::vector<char> workspace(gemm_workspace_bytes(s, dtype_of<T>()));
    gemm<T>(s, a.data(), b.data(), out.data(), accumulate, workspace.data());
    return out;
  }
};

/// Bit 0 of `layout` says that A is stored transposed, bit 1 that B is. Rows of A, B and C lie one,
/// two and three times `padding` elements apart.
inline GemmShape shape_with_layout(
    int64_t m, int64_t n, int64_t k, int layout, int64_t padding = 0) {
  const bool transpose_a = layout & 1, transpose_b = layout & 2;
  return {m,
          n,
          k,
          transpose_a,
          transpose_b,
          (transpose_a ? m : k) + padding,
          (transpose_b ? k : n) + 2 * padding,
          n + 3 * padding};
}

template <typename T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0;
}

/// An array of T that touches a page without access, at its end or at its beginning.
template <typename T>
class Guarded {
 public:
  Guarded(const std::vector<T>& values, bool at_end) : count_(values.size()) {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    const size_t bytes = count_ * sizeof(T);
    const size_t inside = (bytes + page - 1) / page * page;
    mapped_ = inside + 2 * page;
    base_ =
        static_cast<char*>(mmap(nullptr, mapped_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    EXPECT_NE(static_cast<void*>(base_), MAP_FAILED);
    EXPECT_EQ(mprotect(base_ + page, inside, PROT_READ | PROT_WRITE), 0);
    data_ = reinterpret_cast<T*>(base_ + page + (at_end ? inside - bytes : 0));
    if (bytes > 0) std::memcpy(static_cast<void*>(data_), values.data(), bytes);
  }
  ~Guarded() { munmap(base_, mapped_); }
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  T* data() { return data_; }
  std::vector<T> values() const { return {data_, data_ + count_}; }

 private:
  size_t count_;
  size_t mapped_;
  char* base_;
  T* data_;
};

}  // namespace ridge::cpu
