#include "ridge/graph/ops/product_i8.h"

#include "ridge/graph/ops/elementwise.h"
#include "ridge/graph/ops/shape.h"
#include "ridge/graph/ops/source.h"

namespace ridge {
namespace {

bool is_byte(DType dtype) { return dtype == DType::kI8 || dtype == DType::kU8; }

int64_t least_of(DType dtype) { return dtype == DType::kI8 ? -128 : 0; }

// A scalar, or one number for each of `count` lanes.
void check_lanes(
    std::string_view op, std::string_view what, const TensorType& x, DType dtype, int64_t count) {
  const bool is_each = count != ProductI8::kOneRow && x.shape == Shape{count};
  check(x.dtype == dtype && (x.rank() == 0 || is_each),
        "[{}] {} must be {} of the shape (){}; got {}",
        op,
        what,
        name_of(dtype),
        count == ProductI8::kOneRow ? std::string() : fmt::format(" or ({})", count),
        to_string(x));
}

}  // namespace

int64_t ProductI8::low() const { return limits.empty() ? least_of(to) : limits[0]; }
int64_t ProductI8::high() const { return limits.empty() ? least_of(to) + 255 : limits[1]; }

void ProductI8::check_inputs(std::string_view op,
                             std::span<const TensorType> inputs,
                             int64_t rows,
                             int64_t columns) const {
  const TensorType &a = inputs[kA], &b = inputs[kB];
  check(is_byte(a.dtype) && is_byte(b.dtype),
        "[{}] factors must be i8 or u8; got {} and {}",
        op,
        to_string(a),
        to_string(b));
  check(to == DType::kI32 || to == DType::kF32 || is_byte(to),
        "[{}] results are i32, f32, i8 or u8; got {}",
        op,
        name_of(to));
  const int64_t least = least_of(to);
  const bool are_limits = limits.size() == 2 && is_rounded() && limits[0] >= least &&
                          limits[0] <= limits[1] && limits[1] <= least + 255;
  check(limits.empty() || are_limits,
        "[{}] limits are the least and the largest result of i8 or u8; got {} of {}",
        op,
        to_string(limits),
        name_of(to));
  const size_t fewest = is_rounded() ? 6 : is_scaled() ? 5 : 4;
  check(inputs.size() == fewest || (is_scaled() && inputs.size() == fewest + 1),
        "[{}] results of {} take {} inputs{}; got {}",
        op,
        name_of(to),
        fewest,
        is_scaled() ? ", or one more" : "",
        inputs.size());
  check_lanes(op, "the zero point of a", inputs[kAZero], a.dtype, rows);
  check_lanes(op, "the zero point of b", inputs[kBZero], b.dtype, columns);
  if (is_scaled()) check_lanes(op, "the scale", inputs[kScale], DType::kF32, columns);
  if (is_rounded())
    check(inputs[kZero] == TensorType{to, {}},
          "[{}] the zero point of the result must be a scalar of {}; got {}",
          op,
          name_of(to),
          to_string(inputs[kZero]));
  if (inputs.size() == fewest) return;
  const TensorType& given = inputs[bias()];
  check((given.dtype == DType::kF32 || given.dtype == DType::kI32) && given.shape == Shape{columns},
        "[{}] the bias must be f32 or i32 of the shape ({}); got {}",
        op,
        columns,
        to_string(given));
}

Value ProductI8::result_of(Value sum, std::span<const Value> inputs) const {
  if (!is_scaled()) return sum;
  const auto like = [&](Value x) { return broadcast(x, sum.shape()); };
  const Value added = inputs.size() > bias() ? inputs[bias()] : Value{};
  if (added && added.dtype() == DType::kI32)
    sum = cast(cast(sum, DType::kI64) + like(cast(added, DType::kI64)), DType::kI32);
  Value x = cast(sum, DType::kF32) * like(inputs[kScale]);
  if (added && added.dtype() == DType::kF32) x = x + like(added);
  if (!is_rounded()) return x;
  // Between these limits adding and taking 1.5 * 2^23 rounds to whole numbers.
  constexpr double kWhole = 12582912.0;
  const Value zero = cast(inputs[kZero], DType::kF32);
  x = minimum(maximum(x, like(static_cast<double>(low()) - zero)),
              like(static_cast<double>(high()) - zero));
  return cast(((x + kWhole) - kWhole) + like(zero), to);
}

void ProductI8::visit_fields(FieldVisitor& v) {
  v.visit("to", to);
  v.visit("limits", limits);
}

void ScaledTo::apply(ProductI8& product, std::vector<Value>& inputs) const {
  product.to = dtype;
  product.limits = limits;
  if (product.is_scaled()) inputs.push_back(scale);
  if (product.is_rounded()) inputs.push_back(zero);
  if (product.is_scaled() && bias) inputs.push_back(bias);
}

Value zero_point_of(Value zero, Value factor) {
  return zero ? zero : constant(factor.graph(), {factor.dtype(), {}}, 0.0);
}

Value bytes_of_i32(Value x) {
  std::vector<Value> bytes;
  for (int i = 0; i < 4; ++i) {
    const Value byte = cast(x, DType::kU8);
    Shape shape = x.shape();
    shape.push_back(1);
    bytes.push_back(reshape(cast(byte, DType::kI8), shape));
    const Value rest = x - cast(byte, DType::kI32);
    x = cast(cast(rest, DType::kF64) / 256.0, DType::kI32);  // exact
  }
  return concat(bytes, x.rank());
}

}  // namespace ridge
