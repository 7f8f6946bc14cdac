// The base of printed kernels. NVRTC compiles this text with --device-as-default-execution-space
// and without contraction of a * b + c; the tests compile the same text for the host, with the few
// names of CUDA from tests/backend/cuda/simulation/simt.h.
//
// A value of f16 or bf16 is held as the float that it is: what makes one rounds it at once. Every
// function here gives the bits of its twin in base/dtype.h or backend/cpu.
#pragma once

#include <cstdint>

#ifdef __CUDACC_RTC__
// The names by which backend/cpu/isa/functions.h, which is compiled here too, asks for arithmetic.
#define __builtin_fmaf(a, b, c) __fmaf_rn(a, b, c)
#define __builtin_fma(a, b, c) __fma_rn(a, b, c)
#define __builtin_sqrtf(x) __fsqrt_rn(x)
#define __builtin_sqrt(x) __dsqrt_rn(x)
#define __builtin_fabsf(x) fabsf(x)
#define __builtin_fabs(x) fabs(x)
#define __builtin_fmodf(a, b) fmodf(a, b)
#define __builtin_fmod(a, b) fmod(a, b)
#define __builtin_copysignf(x, y) copysignf(x, y)
#define __builtin_inff() __int_as_float(0x7f800000)
#define __builtin_inf() __longlong_as_double(0x7ff0000000000000ll)
#define __builtin_nanf(text) __int_as_float(0x7fc00000)
#define __builtin_bit_cast(to, x) ::ridge::cuda::bits_as(x, static_cast<to*>(nullptr))
// In f64 these differ from those of the C library in the last bits.
#define __builtin_exp(x) exp(x)
#define __builtin_log(x) log(x)
#define __builtin_sin(x) sin(x)
#define __builtin_cos(x) cos(x)
#define __builtin_tanh(x) tanh(x)
#define __builtin_erf(x) erf(x)
#define __builtin_erfc(x) erfc(x)
#define __builtin_pow(a, b) pow(a, b)
#define __builtin_powf(a, b) static_cast<float>(pow(static_cast<double>(a), static_cast<double>(b)))
#define RIDGE_DYNAMIC_SHARED(name) extern __shared__ __align__(16) unsigned char name[]

namespace ridge::cuda {
inline uint32_t bits_as(float x, uint32_t*) { return __float_as_uint(x); }
inline float bits_as(uint32_t x, float*) { return __uint_as_float(x); }
inline uint64_t bits_as(double x, uint64_t*) {
  return static_cast<uint64_t>(__double_as_longlong(x));
}
inline double bits_as(uint64_t x, double*) {
  return __longlong_as_double(static_cast<long long>(x));
}
}  // namespace ridge::cuda
#endif

namespace ridge::cuda {

inline uint32_t bits_of_float(float x) { return __builtin_bit_cast(uint32_t, x); }
inline float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint64_t bits_of_double(double x) { return __builtin_bit_cast(uint64_t, x); }
inline double double_of_bits(uint64_t bits) { return __builtin_bit_cast(double, bits); }

inline float multiply_add(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double multiply_add(double a, double b, double c) { return __builtin_fma(a, b, c); }

// ---- elements in memory ----

struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};

inline float value_of(F16 x) {
#ifdef __CUDA_ARCH__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
#else
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1fu) return float_of_bits(sign | 0x7f800000u | (mantissa << 13));
  if (exponent != 0) return float_of_bits(sign | ((exponent + 112u) << 23) | (mantissa << 13));
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;  // zero or subnormal, exact
  return sign != 0 ? -magnitude : magnitude;
#endif
}
inline float value_of(BF16 x) { return float_of_bits(static_cast<uint32_t>(x.bits) << 16); }
template <typename T>
inline T value_of(T x) {
  return x;
}

inline uint16_t f16_bits(float x) {
#ifdef __CUDA_ARCH__
  // Two at a time, one of them nothing: the form for one runs at a quarter of the speed.
  uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  return static_cast<uint16_t>(bits);
#else
  const uint32_t u = bits_of_float(x), sign = (u >> 16) & 0x8000u, magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<uint16_t>(sign | 0x7e00u);
  if (magnitude >= 0x477ff000u) return static_cast<uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u)
    return static_cast<uint16_t>(sign |
                                 (bits_of_float(float_of_bits(magnitude) + 0.5f) - 0x3f000000u));
  return static_cast<uint16_t>(
      sign | ((magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13));
#endif
}

inline uint16_t bf16_bits(float x) {
#ifdef __CUDA_ARCH__
  uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(0.0f), "f"(x));
  return static_cast<uint16_t>(bits);
#else
  const uint32_t u = bits_of_float(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((u >> 16) | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
#endif
}

inline void set(F16& to, float x) { to.bits = f16_bits(x); }
inline void set(BF16& to, float x) { to.bits = bf16_bits(x); }
template <typename T>
inline void set(T& to, T x) {
  to = x;
}
/// Converts what was rounded when it was made: the dtype holds it, so nothing is rounded again.
template <typename T, typename X>
inline void keep(T& to, X x) {
  set(to, x);
}
inline void keep(BF16& to, float x) { to.bits = static_cast<uint16_t>(bits_of_float(x) >> 16); }

/// N neighbours, loaded and stored at once where that is a machine's vector.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Pack {
  T at[N];
};

template <int N, typename T>
inline Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
/// The first `count` of N, which may lie anywhere; zeros behind them.
template <int N, typename T>
inline Pack<T, N> load_some(const T* from, int64_t count) {
  Pack<T, N> y;
#pragma unroll
  for (int k = 0; k < N; ++k) y.at[k] = k < count ? from[k] : T{};
  return y;
}
/// All N where there are as many.
template <int N, typename T>
inline Pack<T, N> load(const T* from, int64_t count) {
  return count >= N ? load<N>(from) : load_some<N>(from, count);
}
template <int N, typename T>
inline void store(T* to, const Pack<T, N>& x) {
  *reinterpret_cast<Pack<T, N>*>(to) = x;
}
template <int N, typename T>
inline void store_some(T* to, const Pack<T, N>& x, int64_t count) {
#pragma unroll
  for (int k = 0; k < N; ++k)
    if (k < count) to[k] = x.at[k];
}
template <int N, typename T>
inline void store(T* to, const Pack<T, N>& x, int64_t count) {
  if (count >= N)
    store<N>(to, x);
  else
    store_some<N>(to, x, count);
}

/// Brings n elements into shared memory, by all threads of the block, which has to meet before one
/// reads them. `to` is a multiple of 16 bytes and has 16 more than they take: they lie as far
/// behind a multiple of 16 as in memory, so that most are moved 16 bytes at a time. Returns the
/// first.
template <typename T>
inline const T* keep_row(unsigned char* to, const T* from, uint32_t n) {
  constexpr uint32_t kUnit = 16 / sizeof(T), kAtOnce = 8;
  const auto behind = static_cast<uint32_t>(reinterpret_cast<uint64_t>(from) % 16);
  T* const kept = reinterpret_cast<T*>(to + behind);
  const uint32_t before = (16 - behind) % 16 / static_cast<uint32_t>(sizeof(T));
  const uint32_t head = before < n ? before : n;
  const uint32_t units = (n - head) / kUnit, step = blockDim.x;
  // Many loads under way at once: nothing else hides how long memory takes.
  for (uint32_t first = threadIdx.x; first < units; first += kAtOnce * step) {
    Pack<T, kUnit> packs[kAtOnce];
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i)
      if (first + i * step < units)
        packs[i] = load<kUnit>(from + head + (first + i * step) * kUnit);
#pragma unroll
    for (uint32_t i = 0; i < kAtOnce; ++i)
      if (first + i * step < units)
        store<kUnit>(kept + head + (first + i * step) * kUnit, packs[i]);
  }
  for (uint32_t i = threadIdx.x; i < head; i += step) kept[i] = from[i];
  for (uint32_t i = head + units * kUnit + threadIdx.x; i < n; i += step) kept[i] = from[i];
  return kept;
}

// ---- conversions ----

inline float round_f16(float x) { return value_of(F16{f16_bits(x)}); }
inline float round_bf16(float x) { return value_of(BF16{bf16_bits(x)}); }

/// A float that rounds to the same f16 or bf16 as x does.
inline float round_to_odd(double x) {
  const float nearest = static_cast<float>(x);
  if (!(x == x) || static_cast<double>(nearest) == x) return nearest;
  uint32_t bits = bits_of_float(nearest);
  const double magnitude = x < 0 ? -x : x;
  const double rounded = static_cast<double>(nearest < 0 ? -nearest : nearest);
  if (rounded > magnitude) --bits;  // towards zero, from infinity too
  return float_of_bits(bits | 1u);
}
inline double round_to_odd(int64_t x) {
  uint64_t magnitude = x < 0 ? uint64_t{0} - static_cast<uint64_t>(x) : static_cast<uint64_t>(x);
  int spare = -53;
  for (uint64_t rest = magnitude; rest != 0; rest >>= 1) ++spare;
  if (spare > 0) {
    const uint64_t mask = (uint64_t{1} << spare) - 1;
    if ((magnitude & mask) != 0) magnitude = (magnitude & ~mask) | (uint64_t{1} << spare);
  }
  const double y = static_cast<double>(magnitude);
  return x < 0 ? -y : y;
}
inline float nearest_odd(float x) { return x; }
inline float nearest_odd(double x) { return round_to_odd(x); }
template <typename T>
inline float nearest_odd(T x) {
  return round_to_odd(round_to_odd(static_cast<int64_t>(x)));
}
template <typename T>
inline float to_f16(T x) {
  return round_f16(nearest_odd(x));
}
template <typename T>
inline float to_bf16(T x) {
  return round_bf16(nearest_odd(x));
}

template <typename T>
inline constexpr bool kIsSigned = T(-1) < T(0);

/// Converts a float to an integer: towards zero, saturating, and NaN to 0.
template <typename To, typename From>
inline To to_integer(From x) {
  constexpr int kDigits = static_cast<int>(8 * sizeof(To)) - (kIsSigned<To> ? 1 : 0);
  constexpr From kEnd = static_cast<From>(uint64_t{1} << (kDigits - 1)) * From(2);
  constexpr To kMost =
      static_cast<To>((uint64_t{1} << (kDigits - 1)) - 1 + (uint64_t{1} << (kDigits - 1)));
  constexpr To kLeast = kIsSigned<To> ? static_cast<To>(-kMost - 1) : To(0);
  if (!(x == x)) return To(0);
  if (x >= kEnd) return kMost;
  if (x <= (kIsSigned<To> ? -kEnd : From(0))) return kLeast;
  return static_cast<To>(x);
}

// ---- ops that are no operator of C++ ----

inline float square_root(float x) { return __builtin_sqrtf(x); }
inline double square_root(double x) { return __builtin_sqrt(x); }
inline float absolute(float x) { return __builtin_fabsf(x); }
inline double absolute(double x) { return __builtin_fabs(x); }
inline float remainder_of(float a, float b) { return __builtin_fmodf(a, b); }
inline double remainder_of(double a, double b) { return __builtin_fmod(a, b); }
inline bool finite(float x) { return __builtin_fabsf(x) < __builtin_inff(); }
inline bool finite(double x) { return __builtin_fabs(x) < __builtin_inf(); }
inline float relu(float x) { return x <= 0.0f ? 0.0f : x; }
inline double relu(double x) { return x <= 0.0 ? 0.0 : x; }
template <typename T>
inline T sign(T x) {
  return x > T(0) ? T(1) : x < T(0) ? T(-1) : x == x ? T(0) : x;
}
/// NaN where either is; the first of equals.
template <typename T>
inline T larger(T a, T b) {
  return a >= b || a != a ? a : b;
}
template <typename T>
inline T smaller(T a, T b) {
  return a <= b || a != a ? a : b;
}

// Integers wrap.
template <typename T>
inline T wrapped_neg(T x) {
  return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
}
template <typename T>
inline T wrapped_abs(T x) {
  return x < T(0) ? wrapped_neg(x) : x;
}
template <typename T>
inline T wrapped_add(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
template <typename T>
inline T wrapped_sub(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}
template <typename T>
inline T wrapped_mul(T a, T b) {
  return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// ---- reductions, in the order of all executors of the Kernel IR ----
//
// Element i of a piece of 2048 belongs to lane i mod 64, a lane adds its elements one after the
// other, and the 64 lanes are four turns of sixteen: (0 + 1) + (2 + 3), then l with l + 8, + 4, +
// 2,
// + 1. Sixteen threads hold four neighbouring lanes each, so that they load vectors.

inline constexpr int kGroup = 16;
inline constexpr int64_t kPiece = 2048;

struct Plus {
  template <typename T>
  static T neutral() {
    return T(0);
  }
  template <typename T>
  static T lanes(T a, T b) {
    return a + b;
  }
  template <typename T>
  static T fold(T a, T b) {
    return a + b;
  }
};

/// Among equal numbers, such as zeros of either sign, lanes keep the second, and the fold of a turn
/// the first.
struct Larger {
  template <typename T>
  static T neutral() {
    return -static_cast<T>(__builtin_inff());
  }
  template <typename T>
  static T lanes(T a, T b) {
    return a > b || a != a ? a : b;
  }
  template <typename T>
  static T fold(T a, T b) {
    return larger(a, b);
  }
};

/// A group's reduction of one piece, of which a thread has packs of four; or, by a group of twice
/// as many threads, of two: the tree is the same. All threads of the warp call result() together.
template <class Op, typename T, int kOfPack = 4>
struct Reduced {
  static constexpr int kThreadsOfFour = 4 / kOfPack, kThreads = kGroup * kThreadsOfFour;
  T at[kOfPack];

  Reduced() {
#pragma unroll
    for (int k = 0; k < kOfPack; ++k) at[k] = Op::template neutral<T>();
  }
  void add(int k, T x) { at[k] = Op::lanes(at[k], x); }
  static T down(T x, int by) { return __shfl_down_sync(0xffffffffu, x, by, kThreads); }
  T result() const {
    T x[kOfPack];
#pragma unroll
    for (int k = 0; k < kOfPack; ++k) {
      x[k] = Op::lanes(at[k], down(at[k], 4 * kThreadsOfFour));
      x[k] = Op::lanes(x[k], down(x[k], 8 * kThreadsOfFour));
      x[k] = Op::fold(x[k], down(x[k], 2 * kThreadsOfFour));
      x[k] = Op::fold(x[k], down(x[k], 1 * kThreadsOfFour));
      // The other two are the next thread's.
      if (kOfPack == 2) x[k] = Op::fold(x[k], down(x[k], 1));
    }
    const T y = kOfPack == 2
                    ? Op::fold(x[0], x[1])
                    : Op::fold(Op::fold(x[0], x[2 % kOfPack]), Op::fold(x[1], x[3 % kOfPack]));
    return __shfl_sync(0xffffffffu, y, 0, kThreads);
  }
};

/// The same of the results of up to 64 pieces, a group of the block each. `shared`: one element a
/// piece, which nothing else uses until the block has met again.
template <class Op, typename T>
inline T over_pieces(T own, T* shared, int pieces) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int piece = static_cast<int>(threadIdx.x) / kGroup;
  if (lane == 0 && piece < pieces) shared[piece] = own;
  __syncthreads();
  Reduced<Op, T> all;
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (lane * 4 + k < pieces) all.add(k, shared[lane * 4 + k]);
  return all.result();
}

/// Reduces a piece of the n elements of x, by a group; none of it where it `is_there` not.
template <class Op, typename T>
inline T reduce_piece(const T* x, int64_t n, int64_t piece, bool is_there) {
  const int64_t begin = piece * kPiece;
  const int64_t end = !is_there ? 0 : begin + kPiece < n ? begin + kPiece : n;
  Reduced<Op, T> all;
  int64_t i = begin + threadIdx.x % kGroup * 4;
  // Many loads under way at once: a few groups reduce all there is.
#pragma unroll 8
  for (; i + 4 <= end; i += 4 * kGroup) {
    const Pack<T, 4> pack = load<4>(x + i);
#pragma unroll
    for (int k = 0; k < 4; ++k) all.add(k, pack.at[k]);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k)
    if (i + k < end) all.add(k, x[i + k]);
  return all.result();
}

/// One stage of a reduction of all n elements: y has one for each piece of x.
template <class Op, typename T>
inline void reduce_pieces(const T* x, T* y, int64_t n, T divisor) {
  const int lane = static_cast<int>(threadIdx.x) % kGroup;
  const int64_t pieces = (n + kPiece - 1) / kPiece;
  const int64_t groups = static_cast<int64_t>(blockDim.x) / kGroup;
  for (int64_t first = blockIdx.x * groups; first < pieces; first += gridDim.x * groups) {
    const int64_t piece = first + static_cast<int>(threadIdx.x) / kGroup;
    const T result = reduce_piece<Op>(x, n, piece, piece < pieces);
    if (lane == 0 && piece < pieces) y[piece] = result / divisor;
  }
}

// ---- wrong data ----

/// The place where a kernel says which index was out of range, one of them where several were. All
/// zeros say that none was.
struct Fault {
  unsigned long long place;  ///< 1 + the number of the index among all indices.
  long long index;
};

inline void report(Fault* fault, int64_t place, int64_t index) {
  if (atomicCAS(&fault->place, 0ull, static_cast<unsigned long long>(place) + 1) == 0)
    fault->index = index;
}

}  // namespace ridge::cuda
