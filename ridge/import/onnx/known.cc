#include "ridge/import/onnx/known.h"

#include <algorithm>

#include "ridge/base/cpu/transposed_copy.h"

namespace ridge::onnx {

int64_t checked_elements(DType dtype, const Shape& shape, std::string_view who) {
  TensorType whole{dtype, shape};
  bool has_elements = true;
  for (int64_t& size : whole.shape) {
    check(size >= 0, "{}: a dimension is negative: {}", who, to_string(shape));
    has_elements = has_elements && size > 0;
    size = std::max<int64_t>(size, 1);
  }
  check_type(whole, who);
  return has_elements ? whole.elements() : 0;
}

Known::Known(DType dtype, Shape shape, Bytes bytes, std::shared_ptr<const void> owner)
    : dtype_(dtype),
      shape_(std::move(shape)),
      elements_(checked_elements(dtype, shape_, "known")),
      bytes_(bytes),
      owner_(std::move(owner)) {
  check_internal(bytes_.size() == static_cast<size_t>(elements_) * size_of(dtype_),
                 "{} bytes for {}",
                 bytes_.size(),
                 to_string(type()));
}

Known::Known(Tensor tensor)
    : dtype_(tensor.type().dtype), shape_(tensor.type().shape), elements_(tensor.elements()) {
  const auto kept = std::make_shared<const Tensor>(std::move(tensor));
  bytes_ = {static_cast<const std::byte*>(kept->data()), kept->bytes()};
  owner_ = kept;
}

Known Known::empty(DType dtype, Shape shape) { return {dtype, std::move(shape), {}, nullptr}; }

Known Known::of(const std::vector<int64_t>& values) {
  const auto count = static_cast<int64_t>(values.size());
  if (count == 0) return empty(DType::kI64, {0});
  Tensor tensor({DType::kI64, {count}});
  std::copy(values.begin(), values.end(), tensor.span<int64_t>().begin());
  return Known(std::move(tensor));
}

Known Known::scalar(int64_t value) { return of({value}).reshaped({}); }

double Known::at(int64_t i) const {
  return dispatch(dtype_, [&]<typename T>(TypeTag<T>) {
    return static_cast<double>(convert<double>(element<T>(i)));
  });
}

std::vector<int64_t> Known::integers() const {
  constexpr int64_t kMost = int64_t{1} << 20;
  check(!is_float(dtype_), "expected integers; got {}", name_of(dtype_));
  check(elements_ <= kMost, "expected at most {} integers; got {}", kMost, elements_);
  std::vector<int64_t> values;
  dispatch(dtype_, [&]<typename T>(TypeTag<T>) {
    for (int64_t i = 0; i < elements_; ++i)
      values.push_back(static_cast<int64_t>(convert<int64_t>(element<T>(i))));
  });
  return values;
}

Tensor Known::tensor() const {
  Tensor copy(type());
  std::memcpy(copy.data(), bytes_.data(), bytes_.size());
  return copy;
}

Known Known::reshaped(Shape shape) const {
  Known result(dtype_, std::move(shape), bytes_, owner_);
  result.is_narrow_ = is_narrow_;
  return result;
}

Known Known::transposed(const std::vector<int64_t>& perm) const {
  Shape shape;
  for (const int64_t axis : perm) shape.push_back(shape_[static_cast<size_t>(axis)]);
  Known result = is_empty() ? empty(dtype_, std::move(shape))
                            : Known(transposed_copy(type(), bytes_.data(), perm));
  result.is_narrow_ = is_narrow_;
  return result;
}

}  // namespace ridge::onnx
