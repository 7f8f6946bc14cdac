// A tensor whose elements are known while a model is imported: an initializer, or what follows from
// such and from the shapes. Unlike a Tensor it may have no elements at all.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "ridge/base/tensor.h"
#include "ridge/io/file.h"

namespace ridge::onnx {

/// The product of the sizes, any of which may be 0. UserError, opened by `who`, for more than
/// kMaxRank dimensions, a negative size, and sizes that make 2^48 bytes or more even where another
/// one is 0.
int64_t checked_elements(DType dtype, const Shape& shape, std::string_view who);

class Known {
 public:
  /// Elements that lie in memory of `owner`; they may be unaligned. InternalError unless `bytes`
  /// are those of the type.
  Known(DType dtype, Shape shape, Bytes bytes, std::shared_ptr<const void> owner);
  explicit Known(Tensor tensor);
  /// No elements: one of the sizes is 0.
  static Known empty(DType dtype, Shape shape);
  static Known of(const std::vector<int64_t>& values);
  static Known scalar(int64_t value);

  DType dtype() const { return dtype_; }
  const Shape& shape() const { return shape_; }
  int64_t rank() const { return static_cast<int64_t>(shape_.size()); }
  int64_t elements() const { return elements_; }
  bool is_empty() const { return elements_ == 0; }
  /// Whether the model has integers of fewer bits than the dtype: those of 2 and 4 bits are i8 or
  /// u8 here.
  bool is_narrow() const { return is_narrow_; }
  void set_narrow() { is_narrow_ = true; }
  TensorType type() const { return {dtype_, shape_}; }
  Bytes bytes() const { return bytes_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  /// Element i in row-major order; InternalError when T does not store the dtype.
  template <typename T>
  T element(int64_t i) const {
    check_internal(dtype_of<T>() == dtype_, "elements are {}", name_of(dtype_));
    T value;
    std::memcpy(&value, bytes_.data() + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    return value;
  }
  double at(int64_t i) const;
  /// All elements, of an integer or bool dtype; UserError for floats and for more than 2^20.
  std::vector<int64_t> integers() const;
  /// A copy; there are elements.
  Tensor tensor() const;
  /// The same elements under another shape of as many.
  Known reshaped(Shape shape) const;
  /// Axis i of the result is axis perm[i].
  Known transposed(const std::vector<int64_t>& perm) const;

 private:
  DType dtype_;
  Shape shape_;
  int64_t elements_;
  bool is_narrow_ = false;
  Bytes bytes_;
  std::shared_ptr<const void> owner_;
};

}  // namespace ridge::onnx
