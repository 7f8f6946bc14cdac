// Sixteen virtual lanes of f32 or f64, whatever the width of the machine's registers: sums over
// them have the same bits with every instruction set. 16-bit floats are widened when loaded.
#pragma once

#include "ridge/backend/cpu/isa/halves.h"

namespace ridge::cpu {
namespace {

constexpr int kLanes = 16;

#ifdef __AVX512F__

// g++ 12 warns of an uninitialised operand inside the forms without a mask (GCC bug 105593).
constexpr __mmask16 kAll = 0xffff;

struct RegisterF32 {
  using Type = __m512;
  static constexpr int kWidth = 16;
  static __mmask16 first(int n) { return static_cast<__mmask16>((1u << n) - 1u); }
  static Type set(float x) { return _mm512_set1_ps(x); }
  static Type load(const float* p) { return _mm512_loadu_ps(p); }
  static Type load(const float* p, int n, Type pad) {
    return _mm512_mask_loadu_ps(pad, first(n), p);
  }
  static void store(float* p, Type x) { _mm512_storeu_ps(p, x); }
  static void store(float* p, Type x, int n) { _mm512_mask_storeu_ps(p, first(n), x); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_ps(a, b, c); }
  static Type max(Type a, Type b) { return _mm512_maskz_max_ps(kAll, a, b); }
  // a where it is NaN, else b.
  static Type nan_or(Type a, Type b) {
    return _mm512_mask_mov_ps(b, _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
  }
  static Type widen(const F16Bits* p) {
    return _mm512_maskz_cvtph_ps(kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static Type widen(const BF16Bits* p) {
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
    return _mm512_castsi512_ps(
        _mm512_maskz_slli_epi32(kAll, _mm512_maskz_cvtepu16_epi32(kAll, x), 16));
  }
};

struct RegisterF64 {
  using Type = __m512d;
  static constexpr int kWidth = 8;
  static __mmask8 first(int n) { return static_cast<__mmask8>((1u << n) - 1u); }
  static Type set(double x) { return _mm512_set1_pd(x); }
  static Type load(const double* p) { return _mm512_loadu_pd(p); }
  static Type load(const double* p, int n, Type pad) {
    return _mm512_mask_loadu_pd(pad, first(n), p);
  }
  static void store(double* p, Type x) { _mm512_storeu_pd(p, x); }
  static void store(double* p, Type x, int n) { _mm512_mask_storeu_pd(p, first(n), x); }
  static Type fma(Type a, Type b, Type c) { return _mm512_fmadd_pd(a, b, c); }
  static Type max(Type a, Type b) { return _mm512_maskz_max_pd(0xff, a, b); }
  static Type nan_or(Type a, Type b) {
    return _mm512_mask_mov_pd(b, _mm512_cmp_pd_mask(a, a, _CMP_UNORD_Q), a);
  }
};

#else

alignas(64) constexpr int32_t kFirst[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

struct RegisterF32 {
  using Type = __m256;
  static constexpr int kWidth = 8;
  static __m256i first(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirst + 8 - n));
  }
  static Type set(float x) { return _mm256_set1_ps(x); }
  static Type load(const float* p) { return _mm256_loadu_ps(p); }
  static Type load(const float* p, int n, Type pad) {
    const __m256i mask = first(n);
    return _mm256_blendv_ps(pad, _mm256_maskload_ps(p, mask), _mm256_castsi256_ps(mask));
  }
  static void store(float* p, Type x) { _mm256_storeu_ps(p, x); }
  static void store(float* p, Type x, int n) { _mm256_maskstore_ps(p, first(n), x); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_ps(a, b, c); }
  static Type max(Type a, Type b) { return _mm256_max_ps(a, b); }
  static Type nan_or(Type a, Type b) {
    return _mm256_blendv_ps(b, a, _mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  }
  static Type widen(const F16Bits* p) { return widen8(p); }
  static Type widen(const BF16Bits* p) {
    const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
  }
};

struct RegisterF64 {
  using Type = __m256d;
  static constexpr int kWidth = 4;
  static __m256i first(int n) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kFirst + 8 - 2 * n));
  }
  static Type set(double x) { return _mm256_set1_pd(x); }
  static Type load(const double* p) { return _mm256_loadu_pd(p); }
  static Type load(const double* p, int n, Type pad) {
    const __m256i mask = first(n);
    return _mm256_blendv_pd(pad, _mm256_maskload_pd(p, mask), _mm256_castsi256_pd(mask));
  }
  static void store(double* p, Type x) { _mm256_storeu_pd(p, x); }
  static void store(double* p, Type x, int n) { _mm256_maskstore_pd(p, first(n), x); }
  static Type fma(Type a, Type b, Type c) { return _mm256_fmadd_pd(a, b, c); }
  static Type max(Type a, Type b) { return _mm256_max_pd(a, b); }
  static Type nan_or(Type a, Type b) {
    return _mm256_blendv_pd(b, a, _mm256_cmp_pd(a, a, _CMP_UNORD_Q));
  }
};

#endif

// How many of the register's lanes lie below n, where lanes begin at `begin`.
inline int lanes_below(int n, int begin, int width) {
  const int count = n - begin;
  return count < 0 ? 0 : count > width ? width : count;
}

// A is float or double.
template <typename A>
struct Lanes {
  using R = std::conditional_t<std::is_same_v<A, float>, RegisterF32, RegisterF64>;
  static constexpr int kParts = kLanes / R::kWidth;
  typename R::Type part[kParts];

  static Lanes all(A x) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = R::set(x);
    return y;
  }

  template <typename T>
  static Lanes load(const T* p) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) {
      if constexpr (kIsHalf<T>)
        y.part[i] = R::widen(p + i * R::kWidth);
      else
        y.part[i] = R::load(p + i * R::kWidth);
    }
    return y;
  }

  // The first n lanes from memory, `pad` in the others.
  template <typename T>
  static Lanes load(const T* p, int n, A pad) {
    if constexpr (kIsHalf<T>) {
      alignas(64) A lanes[kLanes];
      for (int i = 0; i < kLanes; ++i) lanes[i] = i < n ? wide(p[i]) : pad;
      return load(lanes);
    } else {
      Lanes y;
      for (int i = 0; i < kParts; ++i)
        y.part[i] =
            R::load(p + i * R::kWidth, lanes_below(n, i * R::kWidth, R::kWidth), R::set(pad));
      return y;
    }
  }

  template <typename T>
  void store(T* p) const {
    if constexpr (kIsHalf<T>) {
      alignas(64) A lanes[kLanes];
      store(lanes);
      narrow(lanes, p, kLanes);
    } else {
      for (int i = 0; i < kParts; ++i) R::store(p + i * R::kWidth, part[i]);
    }
  }

  template <typename T>
  void store(T* p, int n) const {
    if constexpr (kIsHalf<T>) {
      alignas(64) A lanes[kLanes];
      store(lanes);
      narrow(lanes, p, n);
    } else {
      for (int i = 0; i < kParts; ++i)
        R::store(p + i * R::kWidth, part[i], lanes_below(n, i * R::kWidth, R::kWidth));
    }
  }

  friend Lanes operator+(const Lanes& a, const Lanes& b) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] + b.part[i];
    return y;
  }
  friend Lanes operator-(const Lanes& a, const Lanes& b) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] - b.part[i];
    return y;
  }
  friend Lanes operator*(const Lanes& a, const Lanes& b) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] * b.part[i];
    return y;
  }
  friend Lanes operator/(const Lanes& a, const Lanes& b) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = a.part[i] / b.part[i];
    return y;
  }
  static Lanes fma(const Lanes& a, const Lanes& b, const Lanes& c) {
    Lanes y;
    for (int i = 0; i < kParts; ++i) y.part[i] = R::fma(a.part[i], b.part[i], c.part[i]);
    return y;
  }
  // The larger; NaN where either is.
  static Lanes max(const Lanes& a, const Lanes& b) {
    Lanes y;  // the machine's maximum is b where either is NaN
    for (int i = 0; i < kParts; ++i) y.part[i] = R::nan_or(a.part[i], R::max(a.part[i], b.part[i]));
    return y;
  }

  // The lanes combined pairwise: l with l + 8, then l + 4, l + 2, l + 1.
  template <class Op>
  A combined() const {
    alignas(64) A lanes[kLanes];
    store(lanes);
    return fold<Op, kLanes / 2>(lanes);
  }

 private:
  template <class Op, int kWidth>
  static A fold(A (&lanes)[kLanes]) {
    for (int i = 0; i < kWidth; ++i) lanes[i] = Op::of(lanes[i], lanes[i + kWidth]);
    if constexpr (kWidth == 1)
      return lanes[0];
    else
      return fold<Op, kWidth / 2>(lanes);
  }
};

struct Plus {
  template <typename T>
  static T of(const T& a, const T& b) {
    return a + b;
  }
  template <typename A>
  static constexpr A kNeutral = A(0);
};

// NaN where either is.
struct Larger {
  template <typename A>
  static Lanes<A> of(const Lanes<A>& a, const Lanes<A>& b) {
    return Lanes<A>::max(a, b);
  }
  static float of(float a, float b) { return ((a >= b) | (a != a)) ? a : b; }
  static double of(double a, double b) { return ((a >= b) | (a != a)) ? a : b; }
  template <typename A>
  static constexpr A kNeutral = A(-__builtin_inf());
};

// Four accumulators of sixteen lanes that take turns; terms keep their place in the tree whatever
// the machine. Combining piece after piece gives the bits of the whole, where all pieces but the
// last are multiples of kStep.
template <class Op, typename A>
struct Turns {
  static constexpr int kTurns = 4;
  static constexpr int kStep = kTurns * kLanes;
  Lanes<A> sum[kTurns];

  Turns() {
    for (int k = 0; k < kTurns; ++k) sum[k] = Lanes<A>::all(Op::template kNeutral<A>);
  }

  // Combines n terms. term(i, count) gives the lanes of elements [i, i + count), padded with Op's
  // neutral element where count < 16.
  template <class Term>
  void add(int64_t n, Term term) {
    int64_t i = 0;
    for (; i + kStep <= n; i += kStep)
      for (int k = 0; k < kTurns; ++k) sum[k] = Op::of(sum[k], term(i + k * kLanes, kLanes));
    for (int k = 0; k < kTurns; ++k) {
      const int64_t left = n - i - k * kLanes;
      if (left > 0)
        sum[k] =
            Op::of(sum[k], term(i + k * kLanes, static_cast<int>(left < kLanes ? left : kLanes)));
    }
  }

  A result() const {
    return Op::of(Op::of(sum[0], sum[1]), Op::of(sum[2], sum[3])).template combined<Op>();
  }
};

// Combines n >= 1 terms, as Turns does.
template <class Op, typename A, class Term>
A combine(int64_t n, Term term) {
  Turns<Op, A> turns;
  turns.add(n, term);
  return turns.result();
}

// Elements i to i + count of x.
template <typename A, typename T>
Lanes<A> lanes_at(const T* x, int64_t i, int count, A pad) {
  return count == kLanes ? Lanes<A>::load(x + i) : Lanes<A>::load(x + i, count, pad);
}

}  // namespace
}  // namespace ridge::cpu
