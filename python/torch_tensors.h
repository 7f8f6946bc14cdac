// Tensors of PyTorch, by the C functions that libtorch has for compiled models
// (torch/csrc/inductor/aoti_torch/c/shim.h). Those stay as they are from version to version, so
// that the extension needs no header of torch.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ridge::python {

/// A tensor of at::Tensor's type, owned.
class TorchTensor {
 public:
  explicit TorchTensor(void* handle) : handle_(handle) {}
  ~TorchTensor();
  TorchTensor(TorchTensor&& from) noexcept;
  TorchTensor& operator=(TorchTensor&& from) noexcept;

  /// A new one on the CPU with undefined contents. `dtype` is one of torch_dtype().
  static TorchTensor empty(std::span<const int64_t> shape,
                           std::span<const int64_t> strides,
                           int32_t dtype);
  /// A tensor of this one's memory and dtype, `offset` elements further; no view in the sense of
  /// autograd.
  TorchTensor reinterpreted(std::span<const int64_t> shape,
                            std::span<const int64_t> strides,
                            int64_t offset) const;

  void* data() const;
  /// Whether its strides are these; strides of axes of one element do not count.
  bool has_strides(std::span<const int64_t> strides, std::span<const int64_t> shape) const;
  void* release();

 private:
  void* handle_;  ///< Null once it was moved from.
};

/// The number that torch has for a dtype of this name ("float32"). UserError for one without.
int32_t torch_dtype(const std::string& name);

/// Looks the functions up; to be called once, with torch's library. `handles_of` and `tensors_of`
/// are torch._C._aoti's unsafe_alloc_void_ptrs_from_tensors and
/// alloc_tensors_by_stealing_from_void_ptrs. UserError for a torch without them.
void use_torch(const char* library, nanobind::object handles_of, nanobind::object tensors_of);

/// Python's tensors as torch's, and the other way round.
std::vector<TorchTensor> to_torch(const nanobind::list& tensors);
nanobind::list to_python(std::vector<TorchTensor> tensors);

}  // namespace ridge::python
