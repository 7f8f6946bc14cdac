#include "ridge/backend/ref/product_i8.h"

#include <algorithm>
#include <cmath>

namespace ridge::ref {

ResultsI8::ResultsI8(const ProductI8& op, const Call& call) : op_(op) {
  if (op.is_scaled()) scale_ = call.read<double>(ProductI8::kScale);
  if (op.is_rounded()) zero_ = call.read<int64_t>(ProductI8::kZero);
  if (!op.is_scaled() || call.inputs.size() <= op.bias()) return;
  if (call.inputs[op.bias()].dtype == DType::kI32)
    added_ = call.read<int64_t>(op.bias());
  else
    bias_ = call.read<double>(op.bias());
}

double ResultsI8::of(int64_t sum, size_t column) const {
  if (!added_.empty()) sum += added_[column];
  const auto wrapped = static_cast<int32_t>(static_cast<uint32_t>(sum));
  if (!op_.is_scaled()) return wrapped;
  float x = static_cast<float>(wrapped) * static_cast<float>(lane(scale_, column));
  if (!bias_.empty()) x += static_cast<float>(bias_[column]);
  if (!op_.is_rounded()) return static_cast<double>(x);
  if (std::isnan(x)) return 0;
  const double whole = std::nearbyint(static_cast<double>(x)) + static_cast<double>(zero_[0]);
  return std::clamp(whole, static_cast<double>(op_.low()), static_cast<double>(op_.high()));
}

}  // namespace ridge::ref
