// The element types as kernel files see them, in the order of DType. Pure declarations:
// base/dtype.h has inline functions, which must not be compiled here.
#pragma once

#include <cstdint>
#include <type_traits>

#include "ridge/backend/cpu/isa/half_bits.h"

namespace ridge::cpu {

// A bool in memory: 0 or 1.
enum class Bool8 : uint8_t {};

// Number of dtypes: tables of kernels are indexed by DType.
inline constexpr int kElements = 11;

template <int kIndex>
struct ElementAt;
template <>
struct ElementAt<0> : std::type_identity<double> {};
template <>
struct ElementAt<1> : std::type_identity<float> {};
template <>
struct ElementAt<2> : std::type_identity<F16Bits> {};
template <>
struct ElementAt<3> : std::type_identity<BF16Bits> {};
template <>
struct ElementAt<4> : std::type_identity<int64_t> {};
template <>
struct ElementAt<5> : std::type_identity<int32_t> {};
template <>
struct ElementAt<6> : std::type_identity<int16_t> {};
template <>
struct ElementAt<7> : std::type_identity<uint16_t> {};
template <>
struct ElementAt<8> : std::type_identity<uint8_t> {};
template <>
struct ElementAt<9> : std::type_identity<int8_t> {};
template <>
struct ElementAt<10> : std::type_identity<Bool8> {};

template <int kIndex>
using Element = typename ElementAt<kIndex>::type;

template <typename T>
inline constexpr bool kIsHalf = std::is_same_v<T, F16Bits> || std::is_same_v<T, BF16Bits>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIsHalf<T>;
template <typename T>
inline constexpr bool kIsInteger = std::is_integral_v<T>;

// T is computed in this type: f32 for 16-bit floats, else T.
template <typename T>
using Computed = std::conditional_t<kIsHalf<T>, float, T>;

}  // namespace ridge::cpu

// Before a loop whose iterations are independent: it may read and write the same address at the
// same index (an op in place), never another index's. clang tests for overlap at run time instead.
#ifdef __clang__
#define RIDGE_INDEPENDENT
#else
#define RIDGE_INDEPENDENT _Pragma("GCC ivdep")
#endif
