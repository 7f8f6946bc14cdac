#include "ridge/backend/cpu/jit/bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace ridge::cpu::jit {
namespace {

constexpr double kMostI32 = 0x7fffffff;
constexpr double kMostUnit = 0x1p100;  // of 0, which is a multiple of anything

// The largest power of two of which the number is a multiple.
double unit_of(double x) {
  if (x == 0) return kMostUnit;
  int exponent = 0;
  const double fraction = std::frexp(std::abs(x), &exponent);
  const auto digits = static_cast<int64_t>(std::ldexp(fraction, 53));
  return std::ldexp(1.0, exponent - 53 + std::countr_zero(static_cast<uint64_t>(digits)));
}

// The distance of an f32 from the next.
double distance_at(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, std::max(exponent - 24, -149));
}

Bounds whole(double low, double high) {
  return {.low = low, .high = high, .unit = 1, .is_number = true, .may_be_minus_zero = false};
}
const Bounds kAnyI32 = whole(-kMostI32 - 1, kMostI32);

Bounds of_input(DType dtype) {
  if (dtype == DType::kI8) return whole(-128, 127);
  if (dtype == DType::kU8) return whole(0, 255);
  return dtype == DType::kI32 ? kAnyI32 : Bounds{};
}

Bounds of_constant(const Node& node) {
  const double x = node.lane == Lane::kF32 ? double{float_of(node)}
                                           : static_cast<double>(static_cast<int32_t>(node.detail));
  if (!std::isfinite(x)) return {};
  return {.low = x,
          .high = x,
          .unit = unit_of(x),
          .is_number = true,
          .may_be_minus_zero = x == 0 && std::signbit(x)};
}

// The numbers between limits, rounded to f32; `is_exact`: the limits themselves are not rounded
// yet.
Bounds rounded(Bounds x, bool is_exact) {
  auto low = static_cast<float>(x.low), high = static_cast<float>(x.high);
  if (!is_exact) {
    low = std::nextafter(low, -std::numeric_limits<float>::infinity());
    high = std::nextafter(high, std::numeric_limits<float>::infinity());
  }
  if (!std::isfinite(low) || !std::isfinite(high)) return {};
  x.low = low;
  x.high = high;
  const double least = low > 0 ? low : high < 0 ? -high : 0;
  if (least > 0) x.unit = std::max(x.unit, distance_at(least));
  return x;
}

Bounds of_sum(const Bounds& a, const Bounds& b, bool is_difference) {
  if (!a.is_bounded() || !b.is_bounded()) return {};
  // A sum is -0 where both are, a difference where the first is and the second is 0.
  return {.low = is_difference ? a.low - b.high : a.low + b.low,
          .high = is_difference ? a.high - b.low : a.high + b.high,
          .unit = std::min(a.unit, b.unit),
          .is_number = a.is_number && b.is_number,
          .may_be_minus_zero = a.may_be_minus_zero && (is_difference || b.may_be_minus_zero)};
}

Bounds of_product(const Bounds& a, const Bounds& b) {
  if (!a.is_bounded() || !b.is_bounded()) return {};
  const auto [low, high] =
      std::minmax({a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high});
  const double unit = std::min(a.unit * b.unit, kMostUnit);
  // A product of 0 is -0 where the other is negative; others become 0 where they are too small.
  const bool keeps_sign = a.low >= 0 && b.low >= 0 && !a.may_be_minus_zero && !b.may_be_minus_zero;
  const bool has_positive =
      (b.low > 0 && !a.may_be_minus_zero) || (a.low > 0 && !b.may_be_minus_zero);
  const bool is_normal = unit >= 0x1p-100;
  return {.low = low,
          .high = high,
          .unit = is_normal ? unit : 0,
          .is_number = a.is_number && b.is_number,
          .may_be_minus_zero = !(keeps_sign || (has_positive && is_normal))};
}

// The machine's: b where either is NaN.
Bounds of_limit(const Bounds& a, const Bounds& b, bool is_max) {
  Bounds x = b;
  x.may_be_minus_zero = a.may_be_minus_zero || b.may_be_minus_zero;
  x.unit = std::min(a.unit, b.unit);
  x.low = is_max ? (a.is_number ? std::max(a.low, b.low) : b.low) : std::min(a.low, b.low);
  x.high = is_max ? std::max(a.high, b.high) : (a.is_number ? std::min(a.high, b.high) : b.high);
  return x;
}

Bounds of_either(const Bounds& a, const Bounds& b) {
  return {.low = std::min(a.low, b.low),
          .high = std::max(a.high, b.high),
          .unit = std::min(a.unit, b.unit),
          .is_number = a.is_number && b.is_number,
          .may_be_minus_zero = a.may_be_minus_zero || b.may_be_minus_zero};
}

bool is_exact_sum(double a, double b) {
  const double sum = a + b;
  return sum - a == b && sum - b == a;
}

// Limits are f32: f64 has their products, and mostly their sums.
Bounds of_rounded_sum(const Bounds& a, const Bounds& b, bool is_difference) {
  const Bounds x = of_sum(a, b, is_difference);
  if (!x.is_bounded()) return {};
  const bool is_exact = is_difference ? is_exact_sum(a.low, -b.high) && is_exact_sum(a.high, -b.low)
                                      : is_exact_sum(a.low, b.low) && is_exact_sum(a.high, b.high);
  return rounded(x, is_exact);
}

Bounds of_f32(const Node& node, const Bounds& a, const Bounds& b) {
  switch (node.prim) {
    case Prim::kAdd:
    case Prim::kSub:
      return of_rounded_sum(a, b, node.prim == Prim::kSub);
    case Prim::kMul: {
      const Bounds x = of_product(a, b);
      return x.is_bounded() ? rounded(x, true) : Bounds{};
    }
    case Prim::kMin:
    case Prim::kMax:
      return of_limit(a, b, node.prim == Prim::kMax);
    case Prim::kConvert:
      return node.source() == Lane::kI32 && a.is_bounded() ? rounded(a, true) : Bounds{};
    default:
      return {};
  }
}

Bounds of_i32(const Node& node, const Bounds& a, const Bounds& b) {
  Bounds x;
  if (node.prim == Prim::kAdd || node.prim == Prim::kSub) {
    x = of_sum(a, b, node.prim == Prim::kSub);
  } else if (node.prim == Prim::kConvert && node.source() == Lane::kF32 && a.is_number &&
             a.is_bounded()) {
    x = whole(std::trunc(a.low), std::trunc(a.high));
  } else if (node.prim == Prim::kNearest && a.is_number && a.is_bounded()) {
    x = whole(std::nearbyint(a.low), std::nearbyint(a.high));
  }
  return x.is_within(-kMostI32 - 1, kMostI32) ? x : kAnyI32;
}

}  // namespace

float float_of(const Node& constant) {
  return std::bit_cast<float>(static_cast<uint32_t>(constant.detail));
}

Bounds bounds_of(const Program& program, const std::vector<Bounds>& of, const Node& node) {
  if (node.lane != Lane::kF32 && node.lane != Lane::kI32) return {};
  // Bits that are read as numbers of another lane are anything.
  const Lane read = node.prim == Prim::kConvert   ? node.source()
                    : node.prim == Prim::kNearest ? Lane::kF32
                                                  : node.lane;
  const auto operand = [&](size_t i) {
    const int index = node.operands[i];
    const bool is_read = index >= 0 && program.nodes[static_cast<size_t>(index)].lane == read;
    return is_read ? of[static_cast<size_t>(index)] : Bounds{};
  };
  switch (node.prim) {
    case Prim::kInput:
      return of_input(program.inputs[static_cast<size_t>(node.detail)]);
    case Prim::kConstant:
      return of_constant(node);
    case Prim::kSelect:
      return of_either(operand(1), operand(2));
    default:
      return node.lane == Lane::kF32 ? of_f32(node, operand(0), operand(1))
                                     : of_i32(node, operand(0), operand(1));
  }
}

bool has_reciprocal(const Bounds& x, float divisor) {
  return x.is_number && x.is_bounded() && !x.may_be_minus_zero && x.unit >= 0x1p-60 &&
         x.largest() <= 0x1p60 && divisor >= 0x1p-40f && divisor <= 0x1p40f;
}

Bounds bounds_of_quotient(const Bounds& x, float divisor) {
  return rounded({.low = x.low / divisor,
                  .high = x.high / divisor,
                  .unit = 0,
                  .is_number = true,
                  .may_be_minus_zero = false},
                 false);
}

}  // namespace ridge::cpu::jit
