// NVIDIA's library of matrix products, opened at run time: the one place where its functions are
// found and its errors become ours.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>

#include "ridge/backend/cuda/blas/cublaslt_api.h"
#include "ridge/backend/cuda/driver/device.h"
#include "ridge/backend/cuda/driver/library_search.h"
#include "ridge/base/error.h"

namespace ridge::cuda {

/// A call of the library that failed.
class BlasError : public UserError {
 public:
  BlasError(const std::string& message, std::string fix, std::string call, BlasResult result)
      : UserError(message, std::move(fix)), call_(std::move(call)), result_(result) {}
  const std::string& call() const { return call_; }
  BlasResult result() const { return result_; }

 private:
  std::string call_;
  BlasResult result_;
};

/// How a call ended.
struct [[nodiscard]] BlasStatus {
  const char* call;
  BlasResult result;
  bool ok() const { return result == BlasResult::kSuccess; }
};

/// One function of the library, which takes `Args` and returns a BlasResult.
template <typename... Args>
class BlasCall {
 public:
  explicit BlasCall(const char* name) : name_(name) {}
  bool find_in(const OpenedLibrary& library) { return library.find(function_, name_); }
  BlasStatus operator()(Args... args) const { return {name_, function_(args...)}; }
  const char* name() const { return name_; }

 private:
  const char* name_;
  BlasResult (*function_)(Args...) = nullptr;
};

/// The functions that Ridge calls, by the library's names without `cublasLt`.
struct BlasLibrary {
  /// The library that $RIDGE_CUBLASLT names; else libcublasLt.so.13 or .12 from where
  /// library_search.h looks. UserError when there is none, it lacks a function, or
  /// the driver, of that version of CUDA, does not run its kernels.
  static std::shared_ptr<const BlasLibrary> open(int driver = kAnyDriver);

  /// Throws BlasError unless the call succeeded. The text says with what it was called; it is made
  /// only then.
  template <typename... Args>
  void check(BlasStatus status, fmt::format_string<Args...> with, Args&&... args) const {
    if (!status.ok()) [[unlikely]]
      fail(status, fmt::format(with, std::forward<Args>(args)...));
  }
  [[noreturn]] void fail(BlasStatus status, const std::string& with) const;

  std::string path;
  std::string version_text;  ///< "13.1.0".

  BlasCall<BlasHandle*> create{"cublasLtCreate"};
  BlasCall<BlasHandle> destroy{"cublasLtDestroy"};
  BlasCall<BlasMatmulHandle*, BlasCompute, BlasType> matmul_create{"cublasLtMatmulDescCreate"};
  BlasCall<BlasMatmulHandle> matmul_destroy{"cublasLtMatmulDescDestroy"};
  BlasCall<BlasMatmulHandle, BlasMatmulAttribute, const void*, size_t> matmul_set{
      "cublasLtMatmulDescSetAttribute"};
  BlasCall<BlasLayoutHandle*, BlasType, uint64_t, uint64_t, int64_t> layout_create{
      "cublasLtMatrixLayoutCreate"};
  BlasCall<BlasLayoutHandle> layout_destroy{"cublasLtMatrixLayoutDestroy"};
  BlasCall<BlasLayoutHandle, BlasLayoutAttribute, const void*, size_t> layout_set{
      "cublasLtMatrixLayoutSetAttribute"};
  BlasCall<BlasPreferenceHandle*> preference_create{"cublasLtMatmulPreferenceCreate"};
  BlasCall<BlasPreferenceHandle> preference_destroy{"cublasLtMatmulPreferenceDestroy"};
  BlasCall<BlasPreferenceHandle, BlasPreferenceAttribute, const void*, size_t> preference_set{
      "cublasLtMatmulPreferenceSetAttribute"};
  BlasCall<BlasHandle,
           BlasMatmulHandle,
           BlasLayoutHandle,
           BlasLayoutHandle,
           BlasLayoutHandle,
           BlasLayoutHandle,
           BlasPreferenceHandle,
           int,
           BlasProposal*,
           int*>
      propose{"cublasLtMatmulAlgoGetHeuristic"};
  BlasCall<const BlasAlgorithm*, BlasAlgorithmAttribute, void*, size_t, size_t*> algorithm_get{
      "cublasLtMatmulAlgoConfigGetAttribute"};
  BlasCall<BlasHandle,
           BlasMatmulHandle,
           const void*,  // alpha
           const void*,  // A
           BlasLayoutHandle,
           const void*,  // B
           BlasLayoutHandle,
           const void*,  // beta
           const void*,  // C
           BlasLayoutHandle,
           void*,  // D
           BlasLayoutHandle,
           const BlasAlgorithm*,
           void*,  // workspace
           size_t,
           StreamHandle>
      matmul{"cublasLtMatmul"};

 private:
  size_t (*version_)() = nullptr;
  const char* (*status_name_)(BlasResult) = nullptr;
  const char* (*status_text_)(BlasResult) = nullptr;

  /// The name of a function that it lacks; empty: none.
  std::string find_all(const OpenedLibrary& from);
};

using BlasLibraryRef = std::shared_ptr<const BlasLibrary>;

/// An object of the library that destroys itself.
template <typename Handle>
class OwnedByBlas {
 public:
  using Destroy = BlasCall<Handle> BlasLibrary::*;

  OwnedByBlas(BlasLibraryRef library, Handle handle, Destroy destroy)
      : library_(std::move(library)), handle_(handle), destroy_(destroy) {}
  OwnedByBlas(OwnedByBlas&& other) noexcept
      : library_(std::move(other.library_)),
        handle_(std::exchange(other.handle_, Handle{})),
        destroy_(other.destroy_) {}
  OwnedByBlas& operator=(OwnedByBlas&&) = delete;
  ~OwnedByBlas() {
    // It is gone either way, and a destructor cannot report an error.
    if (handle_ != Handle{}) static_cast<void>(((*library_).*destroy_)(handle_));
  }
  Handle get() const { return handle_; }

 private:
  BlasLibraryRef library_;
  Handle handle_;
  Destroy destroy_;
};

/// The library's state on a device: what it needs there is made here, and nothing in a launch.
class Blas {
 public:
  /// BlasError when the library cannot run on it.
  Blas(DeviceRef device, BlasLibraryRef library);
  /// After all work that was queued with it.
  ~Blas();
  Blas(const Blas&) = delete;
  Blas& operator=(const Blas&) = delete;

  const Device& device() const { return *device_; }
  const BlasLibraryRef& library() const { return library_; }
  BlasHandle handle() const { return handle_; }

 private:
  DeviceRef device_;
  BlasLibraryRef library_;
  BlasHandle handle_ = nullptr;
};

}  // namespace ridge::cuda
