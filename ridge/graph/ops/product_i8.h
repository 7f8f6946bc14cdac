// The parts that products of bytes share (matmul_i8, conv2d_i8): the zero points of their factors,
// and the results that are made of their sums.
#pragma once

#include <vector>

#include "ridge/graph/graph.h"

namespace ridge {

/// The fields and inputs of an op whose sums are
///
///   sum = the sum of (a - a_zero) * (b - b_zero) over some elements of a and b, modulo 2^32 as i32
///
/// with an element of b for each of N columns. They become results of dtype `to`:
///
///   x = f32(sum) * scale + bias, each operation rounded to nearest even
///
/// - i32: sum. There are no inputs but a, b and their zero points.
/// - f32: x. Inputs besides are scale () or (N) of f32, and where there is one bias (N).
/// - i8, u8: x rounded to the nearest integer (to the even one of two), plus the zero point of the
///   result; where that is beyond the limits, the nearer one of them; 0 for NaN. Inputs besides are
///   scale, the zero point () of dtype `to`, and where there is one bias.
///
/// A bias is of f32, or of i32: then it is added to the sum, modulo 2^32, and not to x.
struct ProductI8 {
  DType to = DType::kI32;
  /// The least and the largest result of i8 or u8; empty: those of its dtype.
  std::vector<int64_t> limits;

  /// Places of the inputs; bias() is that of the bias where there is one.
  static constexpr size_t kA = 0, kB = 1, kAZero = 2, kBZero = 3, kScale = 4, kZero = 5;
  bool is_scaled() const { return to != DType::kI32; }
  bool is_rounded() const { return is_scaled() && to != DType::kF32; }
  size_t bias() const { return is_rounded() ? 6 : 5; }
  /// The limits of results of i8 and u8.
  int64_t low() const;
  int64_t high() const;

  static constexpr int64_t kOneRow = -1;
  /// UserError, opened by the name of the op, unless the factors are bytes, zero points are scalars
  /// or one for each of so many rows of a (kOneRow: scalars alone) and columns of b, and the inputs
  /// behind them and the fields are as they have to be.
  void check_inputs(std::string_view op,
                    std::span<const TensorType> inputs,
                    int64_t rows,
                    int64_t columns) const;
  /// The results of sums in i32, whose last axis is that of the columns, by plain ops.
  Value result_of(Value sum, std::span<const Value> inputs) const;

 protected:
  void visit_fields(FieldVisitor& v);
};

/// The scale of the results of a product, and what belongs to it; null values are left out.
struct ScaledTo {
  DType dtype = DType::kI32;
  Value scale = {}, zero = {}, bias = {};
  std::vector<int64_t> limits = {};

  /// Sets the fields of the product, and adds the inputs behind zero points to `inputs`.
  void apply(ProductI8& product, std::vector<Value>& inputs) const;
};

/// The zero point, or where it is null 0 for the factor.
Value zero_point_of(Value zero, Value factor);

/// The four bytes of each i32 as i8, from the lowest on, along a new last axis: backends pack sums
/// of columns behind the bytes of a factor.
Value bytes_of_i32(Value x);

}  // namespace ridge
