#include "ridge/backend/cuda/open_backend.h"

#include <cstdlib>
#include <string_view>

#include "ridge/backend/cuda/cuda_backend.h"
#include "ridge/backend/cuda/driver/library_search.h"
#include "ridge/base/machine/machine.h"

namespace ridge::cuda {
namespace {

// The file that the environment names for a library; "none": it is not to be used.
std::string_view named_file(const char* variable) {
  const char* const name = std::getenv(variable);
  return name == nullptr ? "" : name;
}

// Without it products are ten times as slow: that is asked for by name alone.
std::shared_ptr<const Blas> open_blas(const DeviceRef& device) {
  if (named_file("RIDGE_CUBLASLT") == "none") return nullptr;
  return std::make_shared<const Blas>(device, BlasLibrary::open(device->driver().version));
}

// Null where it is not installed, and where what is installed cannot be used; that is noted. One
// that is named has to be right.
std::shared_ptr<const Dnn> open_dnn(const DeviceRef& device, const NoteListener& note) {
  constexpr std::string_view kCost =
      "convolutions run as matrix products, attention by ridge's own kernels";
  const std::string_view named = named_file("RIDGE_CUDNN");
  if (named == "none") return nullptr;
  try {
    return std::make_shared<const Dnn>(device, DnnLibrary::open(device->driver().version));
  } catch (const LibraryMissing& error) {
    if (!named.empty()) throw;
    note(fmt::format("{}, as the library is not there: {}", kCost, error.fix()));
  } catch (const UserError& error) {
    if (!named.empty()) throw;
    const std::string fix =
        error.fix().empty() ? "name another library in RIDGE_CUDNN, or none" : error.fix();
    note(fmt::format("{}: {}; {}", kCost, error.message(), fix));
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Backend> open_backend(int number, const NoteListener& note) {
  DeviceRef device = open_device(number);
  // Nothing runs without the compiler and products: better said before anything is read or planned.
  Libraries libraries{.compiler = Nvrtc::open(device->driver().version)};
  const DeviceLimits& limits = device->facts().limits;
  if (const std::string target = libraries.compiler->target_for(limits.major, limits.minor);
      target.starts_with("compute_"))
    note(fmt::format(
        "NVRTC {} does not know sm_{}{}: kernels are compiled for {}, and by the driver for this "
        "GPU each time they are loaded; a later NVRTC, named in RIDGE_NVRTC, knows it",
        libraries.compiler->version(),
        limits.major,
        limits.minor,
        target));
  libraries.blas = open_blas(device);
  libraries.dnn = open_dnn(device, note);
  const std::filesystem::path cache = cache_folder();
  return make_cuda_backend(std::move(device),
                           std::move(libraries),
                           cache.empty() ? cache : cache / "cuda-kernels-1",
                           note);
}

int64_t free_memory(int number) {
  return static_cast<int64_t>(open_device(number)->memory_use().free);
}

}  // namespace ridge::cuda
