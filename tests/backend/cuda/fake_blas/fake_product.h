// Computes a product of cuBLASLt's stand-in as it was queued, with its epilogue, in double.
#pragma once

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/backend/cuda/fake_numbers.h"

namespace ridge::test::fake_blas {

// Numbers of the library's reference, written down a second time: the stand-in is no mirror.
enum Status { kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };
enum Type { kR32F = 0, kR64F = 1, kR16F = 2, kR8I = 3, kR32I = 10, kR16BF = 14 };
enum Epilogue : uint32_t { kNone = 1, kBias = 4, kGelu = 32, kDGelu = 64, kAux = 128 };
enum Compute { kCompute32F = 68, kCompute64F = 70, kCompute32I = 72, kCompute32FFastTf32 = 77 };

struct Matmul {
  int compute, scale;
  int transpose_a = 0, transpose_b = 0;
  uint32_t epilogue = kNone;
  const void* bias = nullptr;
  void* aux = nullptr;
  int64_t aux_ld = 0;
};
struct Layout {
  int type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batches = 1;
  int64_t offset = 0;
};
// A product as it was queued; it may run several times, of a captured graph.
struct Product {
  Matmul matmul;
  Layout a, b, c, d;
  const void *from_a = nullptr, *from_b = nullptr, *from_c = nullptr;
  void *to = nullptr, *workspace = nullptr;
  double alpha = 1, beta = 0;
  size_t workspace_bytes = 0;
  uint32_t tile = 0;  ///< Tile of the algorithm.
};

// Reads a number from the environment, which steers the stand-in in programs that no test steers.
// FAKE_CUBLASLT_TILES: algorithms that are proposed, of the tiles 1, 2, ...; FAKE_CUBLASLT_SLOW:
// the tile of one that takes as long as it can; FAKE_CUBLASLT_WRONG: of one whose results are an
// eighth too large, with FAKE_CUBLASLT_WRONG_ABOVE only where an element of a factor is larger.
inline double number_of(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atof(text);
}

inline DType dtype_of(int type) {
  return type == kR64F   ? DType::kF64
         : type == kR32F ? DType::kF32
         : type == kR16F ? DType::kF16
         : type == kR8I  ? DType::kI8
         : type == kR32I ? DType::kI32
                         : DType::kBF16;
}
inline double read(int type, const void* from, int64_t at) {
  return read_number(dtype_of(type), from, at);
}
inline void write(int type, void* to, int64_t at, double x) {
  write_number(dtype_of(type), to, at, x);
}

// A factor, as the device multiplies it: in TF32 with 11 bits, cut off.
inline double factor(const Matmul& op, int type, const void* from, int64_t at) {
  const double x = read(type, from, at);
  if (op.compute != kCompute32FFastTf32) return x;
  const auto bits = std::bit_cast<uint32_t>(static_cast<float>(x)) & ~0x1fffu;
  return static_cast<double>(std::bit_cast<float>(bits));
}

// By the tanh form (Hendrycks and Gimpel); its derivative by the rules for products and tanh.
constexpr double kInner = 0.79788456080286535588, kCubic = 0.044715;  // the first: sqrt(2 / pi)
inline double gelu(double x) {
  return 0.5 * x * (1 + __builtin_tanh(kInner * (x + kCubic * x * x * x)));
}
inline double gelu_slope(double x) {
  const double t = __builtin_tanh(kInner * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kInner * (1 + 3 * kCubic * x * x);
}

// Element (i, j) of the result, after the epilogue. A bias runs along the rows of D: one number a
// row.
inline double finished(const Product& p, double y, int64_t i, int64_t j) {
  const Matmul& op = p.matmul;
  if (op.epilogue == kNone) return y;
  if ((op.epilogue & kBias) != 0) y += read(p.d.type, op.bias, i);
  const int64_t at = i + j * op.aux_ld;
  if ((op.epilogue & kDGelu) != 0) return y * gelu_slope(read(p.d.type, op.aux, at));
  if ((op.epilogue & kAux) != 0) write(p.d.type, op.aux, at, y);
  return (op.epilogue & kGelu) != 0 ? gelu(y) : y;
}

// Column-major, as the library has it.
inline void multiply(const Product& p) {
  if (p.workspace_bytes > 0) std::memset(p.workspace, 0x5a, p.workspace_bytes);
  static const double wrong = number_of("FAKE_CUBLASLT_WRONG", 0),
                      wrong_above = number_of("FAKE_CUBLASLT_WRONG_ABOVE", -1),
                      slow = number_of("FAKE_CUBLASLT_SLOW", 0);
  const bool is_wrong = wrong == p.tile;
  if (slow == p.tile) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  const auto k = static_cast<int64_t>(p.matmul.transpose_a != 0 ? p.a.rows : p.a.columns);
  for (int64_t item = 0; item < p.d.batches; ++item)
    for (int64_t j = 0; j < static_cast<int64_t>(p.d.columns); ++j)
      for (int64_t i = 0; i < static_cast<int64_t>(p.d.rows); ++i) {
        double sum = 0, most = 0;
        for (int64_t s = 0; s < k; ++s) {
          const int64_t at_a = p.matmul.transpose_a != 0 ? s + i * p.a.ld : i + s * p.a.ld;
          const int64_t at_b = p.matmul.transpose_b != 0 ? j + s * p.b.ld : s + j * p.b.ld;
          const double x = factor(p.matmul, p.a.type, p.from_a, item * p.a.offset + at_a);
          const double w = factor(p.matmul, p.b.type, p.from_b, item * p.b.offset + at_b);
          sum += x * w;
          most = std::max({most, __builtin_fabs(x), __builtin_fabs(w)});
        }
        if (is_wrong && most > wrong_above) sum *= 1.125;
        double y = p.alpha * sum;
        if (p.beta != 0) y += p.beta * read(p.c.type, p.from_c, item * p.c.offset + i + j * p.c.ld);
        write(p.d.type, p.to, item * p.d.offset + i + j * p.d.ld, finished(p, y, i, j));
      }
}

}  // namespace ridge::test::fake_blas
