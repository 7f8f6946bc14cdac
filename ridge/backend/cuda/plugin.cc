#include "ridge/backend/cuda/plugin.h"

#include <cstdlib>
#include <string_view>

#include "ridge/backend/cuda/cuda_backend.h"
#include "ridge/base/machine.h"

namespace ridge::cuda {
namespace {

// Null where it is not installed, or where RIDGE_CUBLASLT is "none": products have kernels of ours
// too. One that is named has to be right.
std::shared_ptr<const Blas> open_blas(const DeviceRef& device) {
  const char* const named = std::getenv("RIDGE_CUBLASLT");
  if (named != nullptr && std::string_view(named) == "none") return nullptr;
  try {
    return std::make_shared<const Blas>(device, BlasLibrary::open());
  } catch (const UserError&) {
    if (named != nullptr && *named != '\0') throw;
    return nullptr;
  }
}

std::unique_ptr<Backend> make_backend(int number) {
  DeviceRef device = open_device(number);
  // Nothing runs without the compiler: better said before anything is read or planned.
  Libraries libraries{.compiler = Nvrtc::open(), .blas = open_blas(device)};
  const std::filesystem::path cache = cache_folder();
  return make_cuda_backend(
      std::move(device), std::move(libraries), cache.empty() ? cache : cache / "cuda-kernels-1");
}

}  // namespace
}  // namespace ridge::cuda

extern "C" const ridge::cuda::Plugin* ridge_cuda_plugin() {
  static constexpr ridge::cuda::Plugin kPlugin = {RIDGE_VERSION, ridge::cuda::make_backend};
  return &kPlugin;
}
