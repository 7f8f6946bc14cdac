#include "ridge/backend/cuda/blas/cublaslt.h"

#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr size_t kMostText = 300;  // bytes of the library's text that an error holds

// One thing to do, where there is one.
std::string fix_of(BlasResult result) {
  switch (result) {
    case BlasResult::kAllocFailed:
      return "see with nvidia-smi who holds the GPU's memory, or make train.batch smaller";
    case BlasResult::kNotInitialized:
    case BlasResult::kArchMismatch:
      return "install the cuBLAS of the CUDA version that nvidia-smi shows, and name its "
             "libcublasLt.so in RIDGE_CUBLASLT";
    case BlasResult::kExecutionFailed:
      return "start again from the last checkpoint (--resume auto)";
    default:
      return {};
  }
}

}  // namespace

std::shared_ptr<const BlasLibrary> BlasLibrary::open(int driver) {
  auto made = std::make_shared<BlasLibrary>();
  const OpenedLibrary library = open_library(
      {.variable = "RIDGE_CUBLASLT",
       .files = {"libcublasLt.so.13", "libcublasLt.so.12"},
       .failed = "[cublaslt] cannot open the library of matrix products",
       .fix = by_driver(driver,
                        "install it by `pip install nvidia-cublas` and name its libcublasLt.so.13 "
                        "in RIDGE_CUBLASLT",
                        "install one for this driver by `pip install nvidia-cublas-cu12` and name "
                        "its libcublasLt.so.12 in RIDGE_CUBLASLT")},
      [&](const OpenedLibrary& opened) {
        const std::string missing = made->find_all(opened);
        return missing.empty() ? newer_than_driver(opened.path, made->version_() / 10000, driver)
                               : fmt::format("{} is no cuBLASLt of CUDA 12 or later: it has no {}",
                                             opened.path,
                                             missing);
      });
  made->path = library.path;
  // 10000 * major + 100 * minor + patch since 12; older ones are refused by their file's name.
  const size_t version = made->version_();
  made->version_text = fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
  return made;
}

std::string BlasLibrary::find_all(const OpenedLibrary& from) {
  return find_functions(from,
                        create,
                        destroy,
                        matmul_create,
                        matmul_destroy,
                        matmul_set,
                        layout_create,
                        layout_destroy,
                        layout_set,
                        preference_create,
                        preference_destroy,
                        preference_set,
                        propose,
                        algorithm_get,
                        matmul,
                        NamedFunction(version_, "cublasLtGetVersion"),
                        NamedFunction(status_name_, "cublasLtGetStatusName"),
                        NamedFunction(status_text_, "cublasLtGetStatusString"));
}

void BlasLibrary::fail(BlasStatus status, const std::string& with) const {
  const char *name = status_name_(status.result), *text = status_text_(status.result);
  std::string error = fmt::format("error {}", static_cast<int>(status.result));
  if (name != nullptr) error = shortened(name, kMostText);
  if (text != nullptr) error = fmt::format("{} ({})", shortened(text, kMostText), error);
  throw BlasError(fmt::format("cuBLASLt {}: {}{} failed: {}",
                              version_text,
                              status.call,
                              with.empty() ? std::string{} : fmt::format("({})", with),
                              error),
                  fix_of(status.result),
                  status.call,
                  status.result);
}

Blas::Blas(DeviceRef device, BlasLibraryRef library)
    : device_(std::move(device)), library_(std::move(library)) {
  device_->ensure_current();
  library_->check(library_->create(&handle_), "{}", device_->facts().name);
}

Blas::~Blas() {
  device_->make_current_quietly();
  device_->wait_quietly();
  static_cast<void>(library_->destroy(handle_));
}

}  // namespace ridge::cuda
