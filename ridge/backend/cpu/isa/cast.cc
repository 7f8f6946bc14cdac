// Casts between any two dtypes, by the rules of base/dtype.h: to a float type, round to nearest
// even, once; from a float to an integer, towards zero, saturating, NaN to 0; between integers,
// modulo 2^bits; to bool, `x != 0`.
#include "ridge/backend/cpu/isa/elementwise_kernels.h"
#include "ridge/backend/cpu/isa/map.h"
#include "ridge/backend/cpu/isa/round_odd.h"

namespace ridge::cpu {
namespace {

template <typename T>
inline constexpr bool kIsSigned = std::is_signed_v<T>;

template <typename T>
constexpr T largest() {
  using Bits = std::make_unsigned_t<T>;
  return static_cast<T>(kIsSigned<T> ? static_cast<Bits>(~Bits{0}) >> 1
                                     : static_cast<Bits>(~Bits{0}));
}

// Float to integer. The ends, +-2^k, are exact in either float type, where the largest integer may
// not be.
template <typename To, typename From>
To saturated(From x) {
  constexpr From kEnd = static_cast<From>(largest<To>() / 2 + 1) * From(2);
  constexpr From kBegin = kIsSigned<To> ? -kEnd : From(0);
  constexpr To kSmallest = static_cast<To>(~largest<To>());
  const From inside = ((x > kBegin) & (x < kEnd)) ? x : From(0);
  using Wide = std::conditional_t<sizeof(To) < 4, int32_t, To>;
  To y = static_cast<To>(static_cast<Wide>(inside));
  y = x >= kEnd ? largest<To>() : y;
  return x <= kBegin ? (kIsSigned<To> ? kSmallest : To{0}) : y;
}

// The value of any element type as a To, where To is no 16-bit float and From neither.
template <typename To, typename From>
To convert(From x) {
  if constexpr (std::is_same_v<To, Bool8>) {
    if constexpr (std::is_same_v<From, Bool8>)
      return x;
    else
      return static_cast<Bool8>(x != From{0});
  } else if constexpr (std::is_same_v<From, Bool8>) {
    return static_cast<To>(static_cast<uint8_t>(x));
  } else if constexpr (kIsInteger<To> && kIsFloat<From>) {
    return saturated<To>(x);
  } else {
    return static_cast<To>(x);
  }
}

// A f32 that rounds to the same 16-bit float as x does.
template <typename From>
float to_round(From x) {
  if constexpr (std::is_same_v<From, double>)
    return round_odd(x);
  else if constexpr (std::is_same_v<From, int64_t>)
    return round_odd(round_odd(x));
  else if constexpr (std::is_same_v<From, int32_t>)
    return round_odd(static_cast<double>(x));
  else
    return convert<float>(x);
}

template <typename From, typename To>
void cast_half_to_half(const From* from, To* to, int64_t n) {
  alignas(64) float block[kBlock];
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t count = least(kBlock, n - begin);
    widen(from + begin, block, count);
    narrow(block, to + begin, count);
  }
}

template <typename From, typename To>
void cast(const void* x, void* y, int64_t n) {
  const From* from = static_cast<const From*>(x);
  To* to = static_cast<To*>(y);
  alignas(64) float block[kBlock];
  if constexpr (std::is_same_v<From, To>) {
    __builtin_memmove(to, from, static_cast<size_t>(n) * sizeof(To));
  } else if constexpr (kIsHalf<From> && kIsHalf<To>) {
    cast_half_to_half(from, to, n);
  } else if constexpr (kIsHalf<From>) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      widen(from + begin, block, count);
      for (int64_t i = 0; i < count; ++i) to[begin + i] = convert<To>(block[i]);
    }
  } else if constexpr (kIsHalf<To>) {
    for (int64_t begin = 0; begin < n; begin += kBlock) {
      const int64_t count = least(kBlock, n - begin);
      for (int64_t i = 0; i < count; ++i) block[i] = to_round(from[begin + i]);
      narrow(block, to + begin, count);
    }
  } else {
    RIDGE_INDEPENDENT
    for (int64_t i = 0; i < n; ++i) to[i] = convert<To>(from[i]);
  }
}

template <int kFrom, int kTo = 0>
constexpr void fill_row(UnaryKernel (&row)[kElements]) {
  if constexpr (kTo < kElements) {
    row[kTo] = cast<Element<kFrom>, Element<kTo>>;
    fill_row<kFrom, kTo + 1>(row);
  }
}

template <int kFrom = 0>
constexpr void fill(CastKernels& k) {
  if constexpr (kFrom < kElements) {
    fill_row<kFrom>(k.from_to[kFrom]);
    fill<kFrom + 1>(k);
  }
}

constexpr CastKernels make_kernels() {
  CastKernels k{};
  fill(k);
  return k;
}

}  // namespace

namespace RIDGE_ISA {
extern constinit const CastKernels cast_kernels = make_kernels();
}

}  // namespace ridge::cpu
