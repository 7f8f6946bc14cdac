#include "ridge/backend/cuda/plugin.h"

#include <cstdlib>
#include <string_view>

#include "ridge/backend/cuda/cuda_backend.h"
#include "ridge/backend/cuda/library_search.h"
#include "ridge/base/machine.h"

namespace ridge::cuda {
namespace {

// What `open` opens, whose file the environment names in `variable`. Null where it is not
// installed, where the name is "none", and where what is installed cannot be used; that is noted,
// with `cost`. One that is named has to be right.
template <typename Open>
auto open_unless_missing(const char* variable,
                         std::string_view cost,
                         std::vector<std::string>& notes,
                         Open open) -> decltype(open()) {
  const char* const name = std::getenv(variable);
  const std::string_view named = name == nullptr ? "" : name;
  if (named == "none") return nullptr;
  try {
    return open();
  } catch (const LibraryMissing&) {
    if (!named.empty()) throw;
  } catch (const UserError& error) {
    if (!named.empty()) throw;
    const std::string fix = error.fix().empty()
                                ? fmt::format("name another library in {}, or none", variable)
                                : error.fix();
    notes.push_back(fmt::format("{}: {}; {}", cost, error.message(), fix));
  }
  return nullptr;
}

std::unique_ptr<Backend> make_backend(int number, std::vector<std::string>& notes) {
  DeviceRef device = open_device(number);
  // Nothing runs without the compiler: better said before anything is read or planned.
  Libraries libraries{.compiler = Nvrtc::open()};
  libraries.blas = open_unless_missing(
      "RIDGE_CUBLASLT", "matrix products run by ridge's own kernels, which are slower", notes, [&] {
        return std::make_shared<const Blas>(device, BlasLibrary::open());
      });
  libraries.dnn = open_unless_missing(
      "RIDGE_CUDNN", "convolution and attention run by ridge's own kernels", notes, [&] {
        return std::make_shared<const Dnn>(device, DnnLibrary::open());
      });
  const std::filesystem::path cache = cache_folder();
  return make_cuda_backend(
      std::move(device), std::move(libraries), cache.empty() ? cache : cache / "cuda-kernels-1");
}

int64_t free_memory(int number) {
  return static_cast<int64_t>(open_device(number)->memory_use().free);
}

}  // namespace
}  // namespace ridge::cuda

extern "C" const ridge::cuda::Plugin* ridge_cuda_plugin() {
  static constexpr ridge::cuda::Plugin kPlugin = {
      RIDGE_VERSION, ridge::cuda::make_backend, ridge::cuda::free_memory};
  return &kPlugin;
}
