// The results of products of bytes.
#pragma once

#include <vector>

#include "ridge/backend/ref/kernel.h"
#include "ridge/graph/ops/product_i8.h"

namespace ridge::ref {

/// One number for all lanes, or one for each.
template <typename V>
V lane(const std::vector<V>& values, size_t i) {
  return values[values.size() > 1 ? i : 0];
}

/// Makes results of sums, with the scales, biases and zero point of a call.
class ResultsI8 {
 public:
  ResultsI8(const ProductI8& op, const Call& call);
  /// The result of a sum of that column; the sum is not yet taken modulo 2^32.
  double of(int64_t sum, size_t column) const;

 private:
  const ProductI8& op_;
  std::vector<double> scale_, bias_;
  std::vector<int64_t> zero_{0}, added_;
};

}  // namespace ridge::ref
