#include "ridge/base/tensor.h"

#include <cstdlib>
#include <cstring>

#include "ridge/base/alignment.h"

namespace ridge {

void Tensor::Free::operator()(std::byte* bytes) const { std::free(bytes); }

Tensor Tensor::unset(TensorType type) {
  Tensor tensor;
  tensor.type_ = std::move(type);
  check_type(tensor.type_, "tensor");
  const size_t size = aligned_bytes(tensor.bytes());
  tensor.storage_.reset(static_cast<std::byte*>(std::aligned_alloc(kBufferAlignment, size)));
  check(tensor.storage_ != nullptr,
        "no memory for a tensor {} of {} bytes",
        to_string(tensor.type_),
        size);
  return tensor;
}

Tensor::Tensor(TensorType type) : Tensor(unset(std::move(type))) {
  std::memset(storage_.get(), 0, aligned_bytes(bytes()));
}

Tensor::Tensor(const Tensor& other) { *this = other; }

Tensor& Tensor::operator=(const Tensor& other) {
  if (this == &other) return *this;
  if (other.storage_ == nullptr) return *this = Tensor();
  Tensor copy = unset(other.type_);
  std::memcpy(copy.data(), other.data(), other.bytes());
  return *this = std::move(copy);
}

void Tensor::check_element(DType dtype) const {
  // Called for every element that at() reads: the text is made only where it is needed.
  if (dtype != type_.dtype) [[unlikely]]
    throw InternalError(fmt::format("tensor {} read as {}", to_string(type_), name_of(dtype)));
}

double Tensor::at(int64_t i) const {
  return dispatch(type_.dtype, [&]<typename T>(TypeTag<T>) {
    return static_cast<double>(span<T>()[static_cast<size_t>(i)]);
  });
}

void Tensor::set(int64_t i, double value) {
  dispatch(type_.dtype,
           [&]<typename T>(TypeTag<T>) { span<T>()[static_cast<size_t>(i)] = convert<T>(value); });
}

bool Tensor::same_bits(const Tensor& other) const {
  return type_ == other.type_ && std::memcmp(data(), other.data(), bytes()) == 0;
}

}  // namespace ridge
