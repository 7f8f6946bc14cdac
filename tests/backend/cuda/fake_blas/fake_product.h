// What cuBLASLt's stand-in computes: a product as it was queued, with its epilogue, in double.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace ridge::test::fake_blas {

// Numbers of the library's reference, written down a second time: the stand-in is no mirror.
enum Status { kSuccess = 0, kInvalidValue = 7, kExecutionFailed = 13, kNotSupported = 15 };
enum Type { kR32F = 0, kR64F = 1, kR16F = 2, kR16BF = 14 };
enum Epilogue : uint32_t { kNone = 1, kBias = 4, kGelu = 32, kDGelu = 64, kAux = 128 };
enum Compute { kCompute32F = 68, kCompute64F = 70, kCompute32FFastTf32 = 77 };

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
  const void *from_a, *from_b, *from_c;
  void* to;
  double alpha, beta;
  void* workspace;
  size_t workspace_bytes;
  uint32_t tile;  ///< Of the algorithm.
};

// Of programs that no test steers. FAKE_CUBLASLT_TILES: algorithms that are proposed, of the tiles
// 1, 2, ...; FAKE_CUBLASLT_SLOW: the tile of one that takes as long as it can; FAKE_CUBLASLT_WRONG:
// of one whose results are an eighth too large, with FAKE_CUBLASLT_WRONG_ABOVE only where an
// element of a factor is larger.
inline double number_of(const char* name, double otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atof(text);
}

inline double half_value(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  const double magnitude = exponent == 0    ? fraction * 0x1p-24
                           : exponent == 31 ? (fraction == 0 ? __builtin_inf() : __builtin_nan(""))
                                            : (1024 + fraction) * __builtin_ldexp(1, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

inline uint16_t half_bits(double x) {
  const auto sign = static_cast<uint16_t>(__builtin_signbit(x) ? 0x8000 : 0);
  double magnitude = __builtin_fabs(x);
  if (magnitude != magnitude) return 0x7e00;
  if (magnitude >= 65520) return static_cast<uint16_t>(sign | 0x7c00);
  int exponent = -14;
  while (exponent < 15 && magnitude >= __builtin_ldexp(1, exponent + 1)) ++exponent;
  // In steps of the last bit, to nearest even; a carry into the exponent is right as it comes.
  const double steps = __builtin_rint(magnitude * __builtin_ldexp(1, 10 - exponent));
  const int bits = (exponent + 14) * 1024 + static_cast<int>(steps);
  return static_cast<uint16_t>(sign | bits);
}

inline double read(int type, const void* from, int64_t at) {
  switch (type) {
    case kR64F:
      return static_cast<const double*>(from)[at];
    case kR32F:
      return static_cast<double>(static_cast<const float*>(from)[at]);
    case kR16F:
      return half_value(static_cast<const uint16_t*>(from)[at]);
    default:
      break;
  }
  const uint32_t bits = uint32_t{static_cast<const uint16_t*>(from)[at]} << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return static_cast<double>(value);
}

inline void write(int type, void* to, int64_t at, double x) {
  if (type == kR64F) {
    static_cast<double*>(to)[at] = x;
  } else if (type == kR32F) {
    static_cast<float*>(to)[at] = static_cast<float>(x);
  } else if (type == kR16F) {
    static_cast<uint16_t*>(to)[at] = half_bits(x);
  } else {
    const auto value = static_cast<float>(x);
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof bits);
    bits += 0x7fffu + (bits >> 16 & 1u);
    static_cast<uint16_t*>(to)[at] = static_cast<uint16_t>(bits >> 16);
  }
}

// A factor, as the device multiplies it: in TF32 with 11 bits, cut off.
inline double factor(const Matmul& op, int type, const void* from, int64_t at) {
  const double x = read(type, from, at);
  if (op.compute != kCompute32FFastTf32) return x;
  uint32_t bits = 0;
  auto value = static_cast<float>(x);
  std::memcpy(&bits, &value, sizeof bits);
  bits &= ~0x1fffu;
  std::memcpy(&value, &bits, sizeof bits);
  return static_cast<double>(value);
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

// What becomes of element (i, j) of the product. A bias runs along the rows of D: one number a row.
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
