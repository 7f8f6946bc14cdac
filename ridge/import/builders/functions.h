// Mathematical functions that ONNX or ATen have and Ridge does not, by ops that it has. Functions
// of floats that are approximated here are computed in f64 and rounded once.
#pragma once

#include "ridge/graph/graph.h"

namespace ridge {

/// The largest whole number not above x, and so on; whole numbers themselves, infinities and NaN
/// stay as they are.
Value floor(Value x);
Value ceil(Value x);
/// Towards zero.
Value trunc(Value x);
/// Rounds to the nearest whole number, and halves to the even one.
Value round_half_even(Value x);

/// The quotient of integers towards zero.
Value divide_integers(Value a, Value b);
/// a - b trunc(a / b), with the sign of a and no rounding; of integers or floats.
Value remainder(Value a, Value b);
/// The same of integers, with the sign of b.
Value floored_remainder(Value a, Value b);

/// x to the power y: of the dtype of x.
Value power(Value x, Value y);
/// The same for one known y.
Value power(Value x, double y);

Value tan(Value x);
Value asin(Value x);
Value acos(Value x);
Value atan(Value x);
Value sinh(Value x);
Value cosh(Value x);
Value asinh(Value x);
Value acosh(Value x);
Value atanh(Value x);

Value is_nan(Value x);
/// True where x is an infinity of one of the signs asked for.
Value is_infinite(Value x, bool positive, bool negative);

Value exclusive_or(Value a, Value b);

}  // namespace ridge
