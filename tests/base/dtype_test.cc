#include "ridge/base/dtype.h"

#include <gtest/gtest.h>
#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

namespace ridge {
namespace {

// A 16-bit float format by its definition: the table of its values, and rounding as a search for
// the nearest. long double holds every f64 and i64, and every midpoint, exactly.
class Format {
 public:
  Format(int exponent_bits, int mantissa_bits) {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int infinity = ((1 << exponent_bits) - 1) << mantissa_bits;
    for (int bits = 0; bits < infinity; ++bits) {
      const int exponent = bits >> mantissa_bits;
      const int mantissa = bits & ((1 << mantissa_bits) - 1);
      const int whole = exponent == 0 ? mantissa : mantissa + (1 << mantissa_bits);
      values_.push_back(std::ldexp(static_cast<long double>(whole),
                                   std::max(exponent, 1) - bias - mantissa_bits));
    }
  }

  // The non-negative finite values, by their bits.
  const std::vector<long double>& values() const { return values_; }
  uint16_t infinity() const { return static_cast<uint16_t>(values_.size()); }

  // Nearest, ties to the even bits; `x` may be anything but NaN.
  uint16_t rounded(long double x) const {
    const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
    const long double magnitude = std::fabs(x);
    const size_t above = static_cast<size_t>(
        std::upper_bound(values_.begin(), values_.end(), magnitude) - values_.begin());
    const size_t below = above - 1;
    // Past the largest value, the step goes on as if there were one more.
    const long double next =
        above < values_.size() ? values_[above] : 2 * values_[below] - values_[below - 1];
    const long double middle = (values_[below] + next) / 2;
    const bool up = magnitude > middle || (magnitude == middle && below % 2 == 1);
    return static_cast<uint16_t>(sign | (up ? above : below));
  }

 private:
  std::vector<long double> values_;
};

const Format& f16() {
  static const Format format(5, 10);
  return format;
}

const Format& bf16() {
  static const Format format(8, 7);
  return format;
}

template <typename T>
bool is_nan_bits(T value) {
  return std::isnan(static_cast<float>(value));
}

// Around every midpoint of neighbours, where rounding decides: the midpoint and the nearest F on
// either side of it.
template <typename F, typename Check>
void around_midpoints(const Format& format, Check check) {
  for (size_t i = 0; i + 1 < format.values().size(); ++i) {
    const F middle = static_cast<F>((format.values()[i] + format.values()[i + 1]) / 2);
    constexpr F kFar = std::numeric_limits<F>::max();
    for (F x : {middle, std::nextafter(middle, F{0}), std::nextafter(middle, kFar)}) {
      check(x);
      check(-x);
    }
  }
}

TEST(DType, NamesSizesAndTypes) {
  std::set<std::string_view> names;
  for (DType dtype : kAllDTypes) {
    EXPECT_EQ(parse_dtype(name_of(dtype)), dtype);
    names.insert(name_of(dtype));
    dispatch(dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      EXPECT_EQ(sizeof(T), size_of(dtype)) << name_of(dtype);
      EXPECT_EQ(dtype_of<T>(), dtype);
      EXPECT_EQ(is_float_type<T>, is_float(dtype));
    });
  }
  EXPECT_EQ(names.size(), std::size(kAllDTypes));
  EXPECT_FALSE(parse_dtype("f8"));
  EXPECT_FALSE(parse_dtype(""));
}

TEST(DType, DispatchFloatRefusesTheRest) {
  int calls = 0;
  for (DType dtype : kAllDTypes) {
    const auto count = [&](auto) { ++calls; };
    if (is_float(dtype))
      dispatch_float(dtype, "test", count);
    else
      EXPECT_THROW(dispatch_float(dtype, "test", count), InternalError);
  }
  EXPECT_EQ(calls, 4);
}

TEST(F16, EveryBitPatternDecodesAndRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    F16 half;
    half.bits = static_cast<uint16_t>(bits);
    const float value = half;
    const uint32_t magnitude = bits & 0x7fff;
    if (magnitude > f16().infinity()) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(is_nan_bits(F16(value))) << bits;
      continue;
    }
    const long double expected = magnitude == f16().infinity()
                                     ? std::numeric_limits<long double>::infinity()
                                     : f16().values()[magnitude];
    ASSERT_EQ(value, bits & 0x8000 ? -expected : expected) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(F16(value).bits, bits);
    ASSERT_EQ(convert<F16>(static_cast<double>(value)).bits, bits);
  }
}

TEST(BF16, EveryBitPatternDecodesAndRoundTrips) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    BF16 brain;
    brain.bits = static_cast<uint16_t>(bits);
    const float value = brain;
    const uint32_t magnitude = bits & 0x7fff;
    if (magnitude > bf16().infinity()) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(is_nan_bits(BF16(value))) << bits;
      continue;
    }
    const long double expected = magnitude == bf16().infinity()
                                     ? std::numeric_limits<long double>::infinity()
                                     : bf16().values()[magnitude];
    ASSERT_EQ(value, bits & 0x8000 ? -expected : expected) << bits;
    ASSERT_EQ(BF16(value).bits, bits);
  }
}

TEST(F16, FloatsAroundEveryMidpoint) {
  around_midpoints<float>(f16(), [](float x) { ASSERT_EQ(F16(x).bits, f16().rounded(x)) << x; });
}

TEST(BF16, FloatsAroundEveryMidpoint) {
  around_midpoints<float>(bf16(), [](float x) { ASSERT_EQ(BF16(x).bits, bf16().rounded(x)) << x; });
}

TEST(F16, DoublesAroundEveryMidpointRoundOnce) {
  around_midpoints<double>(
      f16(), [](double x) { ASSERT_EQ(convert<F16>(x).bits, f16().rounded(x)) << x; });
}

TEST(BF16, DoublesAroundEveryMidpointRoundOnce) {
  around_midpoints<double>(
      bf16(), [](double x) { ASSERT_EQ(convert<BF16>(x).bits, bf16().rounded(x)) << x; });
}

TEST(F16, RandomFloats) {
  std::mt19937 random(1);
  for (int i = 0; i < 1'000'000; ++i) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isnan(x)) {
      ASSERT_TRUE(is_nan_bits(F16(x)));
      ASSERT_TRUE(is_nan_bits(BF16(x)));
      continue;
    }
    ASSERT_EQ(F16(x).bits, f16().rounded(x)) << x;
    ASSERT_EQ(BF16(x).bits, bf16().rounded(x)) << x;
  }
}

TEST(F16, RandomDoublesInRange) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-30, 20);
  for (int i = 0; i < 1'000'000; ++i) {
    double x = std::exp2(exponent(random));
    if (i % 2) x = -x;
    ASSERT_EQ(convert<F16>(x).bits, f16().rounded(x)) << x;
    ASSERT_EQ(convert<BF16>(x).bits, bf16().rounded(x)) << x;
  }
}

TEST(F16, ExtremeDoubles) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(convert<F16>(kInfinity).bits, 0x7c00);
  EXPECT_EQ(convert<F16>(-1e300).bits, 0xfc00);
  EXPECT_EQ(convert<F16>(65519.99999999999).bits, 0x7bff);
  EXPECT_EQ(convert<F16>(65520.0).bits, 0x7c00);
  EXPECT_EQ(convert<F16>(5e-324).bits, 0x0000);
  EXPECT_EQ(convert<F16>(-5e-324).bits, 0x8000);
  EXPECT_EQ(convert<F16>(0x1p-25).bits, 0x0000);
  EXPECT_EQ(convert<F16>(std::nextafter(0x1p-25, 1.0)).bits, 0x0001);
  EXPECT_TRUE(is_nan_bits(convert<F16>(std::nan(""))));
  EXPECT_TRUE(is_nan_bits(convert<BF16>(std::nan(""))));
  EXPECT_EQ(convert<BF16>(3.4e38).bits, 0x7f80);
  EXPECT_EQ(convert<BF16>(-kInfinity).bits, 0xff80);
  EXPECT_EQ(convert<BF16>(5e-324).bits, 0x0000);
}

// The processor's own conversion, where it has one, as a second reference.
__attribute__((target("f16c"))) uint16_t hardware_f16(float x) {
  return static_cast<uint16_t>(
      _mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
}

TEST(F16, AgreesWithTheProcessor) {
  if (!__builtin_cpu_supports("f16c")) GTEST_SKIP() << "this processor has no F16C";
  for (uint64_t u = 0; u <= UINT32_MAX; u += 997) {  // 997 is prime: all low bits are met
    const float x = std::bit_cast<float>(static_cast<uint32_t>(u));
    if (std::isnan(x))
      ASSERT_TRUE(is_nan_bits(F16(x)));
    else
      ASSERT_EQ(F16(x).bits, hardware_f16(x)) << x;
  }
}

#if defined(__FLT16_MAX__) && defined(__clang__)
TEST(F16, AgreesWithTheCompiler) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 1'000'000; ++i) {
    const double x =
        std::ldexp(static_cast<double>(random()), static_cast<int>(random() % 44) - 90);
    ASSERT_EQ(convert<F16>(x).bits, std::bit_cast<uint16_t>(static_cast<_Float16>(x))) << x;
  }
}
#endif

TEST(DTypeConvert, LargeIntegersRoundOnce) {
  // One more than a tie of bf16: rounding to f64 or f32 first would make it a tie, to even.
  for (int shift = 0; shift <= 54; ++shift) {
    for (int64_t mantissa = 128; mantissa < 256; ++mantissa) {
      const int64_t tie = (2 * mantissa + 1) << shift;
      for (int64_t offset : {-1, 0, 1}) {
        for (int64_t x : {tie + offset, -(tie + offset)}) {
          ASSERT_EQ(convert<BF16>(x).bits, bf16().rounded(static_cast<long double>(x))) << x;
          ASSERT_EQ(convert<F16>(x).bits, f16().rounded(static_cast<long double>(x))) << x;
        }
      }
    }
  }
  for (int64_t x : {INT64_MIN, INT64_MIN + 1, INT64_MAX, INT64_MAX - 1, int64_t{0}, int64_t{-1}}) {
    EXPECT_EQ(convert<BF16>(x).bits, bf16().rounded(static_cast<long double>(x))) << x;
    EXPECT_EQ(convert<F16>(x).bits, f16().rounded(static_cast<long double>(x))) << x;
  }
}

// convert at run time: the compiler's own folding of a cast out of range saturates by itself.
template <typename To, typename From>
To converted(From value) {
  volatile From hidden = value;
  return convert<To>(static_cast<From>(hidden));
}

TEST(DTypeConvert, FloatsToIntegersTruncateAndSaturate) {
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(converted<int8_t>(-1.9), -1);
  EXPECT_EQ(converted<int8_t>(127.9f), 127);
  EXPECT_EQ(converted<int8_t>(128.0f), 127);
  EXPECT_EQ(converted<int8_t>(-128.9), -128);
  EXPECT_EQ(converted<int8_t>(-129.0), -128);
  EXPECT_EQ(converted<uint8_t>(-0.9), 0);
  EXPECT_EQ(converted<uint8_t>(-1e30), 0);
  EXPECT_EQ(converted<uint8_t>(255.99), 255);
  EXPECT_EQ(converted<uint8_t>(256.0f), 255);
  EXPECT_EQ(converted<uint16_t>(65535.9), 65535);
  EXPECT_EQ(converted<int16_t>(-40000.0f), INT16_MIN);
  EXPECT_EQ(converted<int32_t>(2147483647.5), INT32_MAX);
  EXPECT_EQ(converted<int32_t>(2147483646.5), INT32_MAX - 1);
  EXPECT_EQ(converted<int32_t>(2147483648.0f), INT32_MAX);
  EXPECT_EQ(converted<int32_t>(-2147483648.0f), INT32_MIN);
  EXPECT_EQ(converted<int64_t>(0x1p63), INT64_MAX);
  EXPECT_EQ(converted<int64_t>(0x1.fffffffffffffp62), int64_t{0x7ffffffffffffc00});
  EXPECT_EQ(converted<int64_t>(-0x1p63f), INT64_MIN);
  EXPECT_EQ(converted<int64_t>(kInfinity), INT64_MAX);
  EXPECT_EQ(converted<int32_t>(-kInfinity), INT32_MIN);
  for (int64_t from_nan : {converted<int64_t>(kNaN),
                           int64_t{converted<int32_t>(kNaN)},
                           int64_t{converted<uint8_t>(static_cast<float>(kNaN))},
                           int64_t{convert<int8_t>(F16(static_cast<float>(kNaN)))}})
    EXPECT_EQ(from_nan, 0);
}

TEST(DTypeConvert, IntegersWrap) {
  EXPECT_EQ(convert<uint8_t>(int32_t{-1}), 255);
  EXPECT_EQ(convert<int8_t>(int64_t{200}), -56);
  EXPECT_EQ(convert<int32_t>(int64_t{1} << 32), 0);
  EXPECT_EQ(convert<int64_t>(uint16_t{65535}), 65535);
}

TEST(DTypeConvert, ToAndFromBool) {
  EXPECT_TRUE(convert<bool>(std::nan("")));
  EXPECT_TRUE(convert<bool>(5e-324));
  EXPECT_FALSE(convert<bool>(-0.0));
  EXPECT_TRUE(convert<bool>(int32_t{256}));
  EXPECT_FALSE(convert<bool>(F16(0.0f)));
  EXPECT_TRUE(convert<bool>(BF16(-1e-30f)));
  EXPECT_EQ(convert<float>(true), 1.0f);
  EXPECT_EQ(convert<F16>(true).bits, 0x3c00);
  EXPECT_EQ(convert<BF16>(false).bits, 0);
}

TEST(DTypeConvert, SmallIntegersSurviveEveryPair) {
  for (DType from : kAllDTypes) {
    for (DType to : kAllDTypes) {
      dispatch(from, [&](auto from_tag) {
        dispatch(to, [&](auto to_tag) {
          using From = typename decltype(from_tag)::type;
          using To = typename decltype(to_tag)::type;
          const int64_t value = std::is_same_v<From, bool> || std::is_same_v<To, bool> ? 1 : 100;
          const To converted = convert<To>(convert<From>(value));
          EXPECT_EQ(convert<int64_t>(converted), value) << name_of(from) << " " << name_of(to);
        });
      });
    }
  }
}

}  // namespace
}  // namespace ridge
