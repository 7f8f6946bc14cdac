#include "ridge/import/builders/quantized.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/source.h"

namespace ridge {

Value rounded_to_integers(Value x, Value zero, DType to) {
  const bool is_signed = to == DType::kI8 || to == DType::kI16;
  const double count = size_of(to) == 1 ? 256 : 65536, least = is_signed ? -count / 2 : 0;
  x = cast(x, DType::kF32);
  if (!zero) zero = constant_like(x, 0.0);
  x = minimum(maximum(x, least - zero), (least + count - 1) - zero);
  // Between these limits adding and taking 1.5 * 2^23 rounds in f32. The half beyond changes
  // nothing then; it rounds where the model is computed in f64.
  constexpr double kWhole = 12582912.0;
  const Value whole = (x + kWhole) - kWhole + zero;
  return cast(whole + (is_signed ? sign(whole) * 0.5 : constant_like(whole, 0.5)), to);
}

}  // namespace ridge
