#include "python/torch_tensors.h"

#include <dlfcn.h>
#include <pthread.h>

#include <string>
#include <utility>

#include "ridge/api/aten_program.h"
#include "ridge/ridge.h"

namespace ridge::python {
namespace {

namespace nb = nanobind;

constexpr int32_t kSuccess = 0;  // AOTI_TORCH_SUCCESS

struct Functions {
  void* library = nullptr;
  int32_t (*get_data_ptr)(void*, void**) = nullptr;
  int32_t (*get_strides)(void*, int64_t**) = nullptr;
  int32_t (*empty_strided)(
      int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, void**) = nullptr;
  int32_t (*reinterpret_tensor)(void*, int64_t, const int64_t*, const int64_t*, int64_t, void**) =
      nullptr;
  int32_t (*delete_tensor_object)(void*) = nullptr;
  void (*parallel)(void (*)(void*), void*, unsigned, unsigned) = nullptr;  // OpenMP's, or null
  int32_t cpu = 0;
  PyObject *handles_of = nullptr, *tensors_of = nullptr;  // They stay until the process ends.
};

Functions torch;

template <typename Function>
void look_up(Function*& function, const std::string& name) {
  function = reinterpret_cast<Function*>(::dlsym(torch.library, ("aoti_torch_" + name).c_str()));
  if (function == nullptr)
    throw UserError("ridge.torch: this PyTorch has no aoti_torch_" + name +
                    "; expected version 2.8 or newer");
}

void check_success(int32_t code, const char* task) {
  if (code != kSuccess) throw UserError(std::string("ridge.torch: PyTorch could not ") + task);
}

// PyTorch's threads are those of OpenMP.
void run_on_team(void (*task)(void*), void* context, unsigned threads) {
  torch.parallel(task, context, threads, 0);
}

// A child has none of the threads, and OpenMP would wait for them.
void forget_team() { AtenProgram::use_team(nullptr); }

}  // namespace

TorchTensor::~TorchTensor() {
  if (handle_ != nullptr) torch.delete_tensor_object(handle_);
}

TorchTensor::TorchTensor(TorchTensor&& from) noexcept : handle_(from.release()) {}

TorchTensor& TorchTensor::operator=(TorchTensor&& from) noexcept {
  std::swap(handle_, from.handle_);
  return *this;
}

void* TorchTensor::release() { return std::exchange(handle_, nullptr); }

TorchTensor TorchTensor::empty(std::span<const int64_t> shape,
                               std::span<const int64_t> strides,
                               int32_t dtype) {
  void* made = nullptr;
  check_success(torch.empty_strided(static_cast<int64_t>(shape.size()),
                                    shape.data(),
                                    strides.data(),
                                    dtype,
                                    torch.cpu,
                                    0,
                                    &made),
                "make a tensor");
  return TorchTensor(made);
}

TorchTensor TorchTensor::reinterpreted(std::span<const int64_t> shape,
                                       std::span<const int64_t> strides,
                                       int64_t offset) const {
  void* made = nullptr;
  check_success(
      torch.reinterpret_tensor(
          handle_, static_cast<int64_t>(shape.size()), shape.data(), strides.data(), offset, &made),
      "make a tensor of a piece of memory");
  return TorchTensor(made);
}

void* TorchTensor::data() const {
  void* address = nullptr;
  check_success(torch.get_data_ptr(handle_, &address), "tell where a tensor lies");
  return address;
}

bool TorchTensor::has_strides(std::span<const int64_t> strides,
                              std::span<const int64_t> shape) const {
  int64_t* own = nullptr;
  check_success(torch.get_strides(handle_, &own), "tell how a tensor lies");
  for (size_t i = 0; i < shape.size(); ++i)
    if (own[i] != strides[i] && shape[i] != 1) return false;
  return true;
}

int32_t torch_dtype(const std::string& name) {
  int32_t (*number)() = nullptr;
  look_up(number, "dtype_" + name);
  return number();
}

void use_torch(const char* library, nb::object handles_of, nb::object tensors_of) {
  torch.library = ::dlopen(library, RTLD_NOW | RTLD_NOLOAD);
  if (torch.library == nullptr)
    throw UserError(std::string("ridge.torch: PyTorch has not loaded ") + library);
  look_up(torch.get_data_ptr, "get_data_ptr");
  look_up(torch.get_strides, "get_strides");
  look_up(torch.empty_strided, "empty_strided");
  look_up(torch.reinterpret_tensor, "_reinterpret_tensor");
  look_up(torch.delete_tensor_object, "delete_tensor_object");
  int32_t (*cpu)() = nullptr;
  look_up(cpu, "device_type_cpu");
  torch.cpu = cpu();
  torch.parallel =
      reinterpret_cast<decltype(torch.parallel)>(::dlsym(torch.library, "GOMP_parallel"));
  if (torch.parallel != nullptr) {
    AtenProgram::use_team(run_on_team);
    ::pthread_atfork(nullptr, nullptr, forget_team);
  }
  torch.handles_of = handles_of.release().ptr();
  torch.tensors_of = tensors_of.release().ptr();
}

std::vector<TorchTensor> to_torch(const nb::list& tensors) {
  std::vector<TorchTensor> list;
  list.reserve(tensors.size());
  for (const nb::handle each : nb::list(nb::handle(torch.handles_of)(tensors)))
    list.emplace_back(PyCapsule_GetPointer(each.ptr(), PyCapsule_GetName(each.ptr())));
  return list;
}

nb::list to_python(std::vector<TorchTensor> tensors) {
  nb::list handles;
  for (TorchTensor& each : tensors)
    handles.append(nb::steal(PyCapsule_New(each.release(), nullptr, nullptr)));
  return nb::list(nb::handle(torch.tensors_of)(handles));
}

}  // namespace ridge::python
