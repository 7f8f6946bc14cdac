// Knowledge of the numbers that a value of a loop can have, from the types of inputs and the
// constants it was made with. Loops over quantized numbers begin with bytes, of which all is known:
// their instructions for NaN, saturation and divisions by constants can be left out or be cheaper
// ones, with the same bits.
#pragma once

#include <limits>
#include <vector>

#include "ridge/backend/cpu/jit/program.h"

namespace ridge::cpu::jit {

/// Bounds of a value of f32 or i32; those that are made without any, and those of others, hold for
/// every value.
struct Bounds {
  static constexpr double kInfinite = std::numeric_limits<double>::infinity();

  /// Values that are not NaN are between them.
  double low = -kInfinite, high = kInfinite;
  /// Values are multiples of this power of two; it is 0 where that is not known.
  double unit = 0;
  bool is_number = false;  ///< Never NaN.
  bool may_be_minus_zero = true;

  bool is_bounded() const { return low > -kInfinite && high < kInfinite; }
  bool is_whole() const { return is_bounded() && unit >= 1; }
  bool is_within(double least, double most) const {
    return is_bounded() && low >= least && high <= most;
  }
  double largest() const { return high > -low ? high : -low; }
};

/// Those of a node of the program, whose operands have the bounds `of`.
Bounds bounds_of(const Program& program, const std::vector<Bounds>& of, const Node& node);

/// The number of a constant of f32.
float float_of(const Node& constant);

/// Whether Recorder::binary() may divide such numbers by way of the divisor's reciprocal: nothing
/// on the way overflows or is too small to be a normal number, and there is no -0.
bool has_reciprocal(const Bounds& x, float divisor);

/// Those of the quotients.
Bounds bounds_of_quotient(const Bounds& x, float divisor);

}  // namespace ridge::cpu::jit
