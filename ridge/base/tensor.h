// A tensor in host memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>

#include "ridge/base/type.h"

namespace ridge {

/// Owns the bytes of one tensor in row-major order, 64-byte aligned. Copies copy the bytes.
class Tensor {
 public:
  Tensor() = default;
  /// Zeros of that type; UserError when the memory cannot be had.
  explicit Tensor(TensorType type);
  /// The same with any bytes: all of them are to be written before one is read.
  static Tensor unset(TensorType type);
  Tensor(const Tensor& other);
  Tensor& operator=(const Tensor& other);
  Tensor(Tensor&&) noexcept = default;
  Tensor& operator=(Tensor&&) noexcept = default;

  const TensorType& type() const { return type_; }
  int64_t elements() const { return type_.elements(); }
  size_t bytes() const { return static_cast<size_t>(type_.bytes()); }
  void* data() { return storage_.get(); }
  const void* data() const { return storage_.get(); }

  /// The elements as T; InternalError when T does not store the dtype.
  template <typename T>
  std::span<T> span() {
    check_element(dtype_of<T>());
    return {static_cast<T*>(data()), static_cast<size_t>(elements())};
  }
  template <typename T>
  std::span<const T> span() const {
    check_element(dtype_of<T>());
    return {static_cast<const T*>(data()), static_cast<size_t>(elements())};
  }

  /// Element i in row-major order, as a double (i64 beyond 2^53 is rounded).
  double at(int64_t i) const;
  /// Sets element i to `value`, converted by the rules of base/dtype.h.
  void set(int64_t i, double value);

  /// True when type and every byte are equal.
  bool same_bits(const Tensor& other) const;

 private:
  struct Free {
    void operator()(std::byte* bytes) const;
  };
  void check_element(DType dtype) const;

  TensorType type_;
  std::unique_ptr<std::byte, Free> storage_;
};

using NamedTensors = std::map<std::string, Tensor>;

}  // namespace ridge
