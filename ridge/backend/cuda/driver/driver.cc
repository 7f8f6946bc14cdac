#include "ridge/backend/cuda/driver/driver.h"

#include <dlfcn.h>

#include <cstdlib>
#include <utility>

#include "ridge/base/html/markup.h"

namespace ridge::cuda {
namespace {

constexpr int kLeastVersion = 12000;
constexpr const char* kLeastDriver = "NVIDIA's driver 525 (CUDA 12.0) or later";
constexpr std::string_view kHostAllocation = "cuMemHostAlloc",
                           kOpening = "cuDevicePrimaryCtxRetain";
constexpr size_t kMostText = 300;  // bytes of another program's text that an error holds
constexpr const char* kLostFix =
    "start again from the last checkpoint (--resume auto): the GPU takes no more work from this "
    "process";

// One thing to do, where there is one. Empty: the driver's own text has to do.
std::string fix_of(Status status) {
  switch (status.result) {
    case Result::kOutOfMemory:
      if (status.call == kOpening)
        return "other programs hold all of the GPU's memory: end one of those that nvidia-smi "
               "shows";
      if (std::string_view(status.call) == kHostAllocation)
        return "make train.batch smaller, or free memory of the host";
      return "see with nvidia-smi who holds the GPU's memory, or make train.batch smaller";
    case Result::kStubLibrary:
      return "this is the toolkit's stand-in for the driver: give the real libcuda.so.1 in "
             "RIDGE_CUDA_DRIVER";
    case Result::kDeviceUnavailable:
      if (status.call == kOpening)
        return "another process holds the GPU for itself: nvidia-smi shows which";
      return "see with nvidia-smi who holds the GPU, and go on from the last checkpoint (--resume "
             "auto)";
    case Result::kNoDevice:
    case Result::kInvalidDevice:
      return no_device_fix();
    case Result::kEccUncorrectable:
    case Result::kNvlinkUncorrectable:
    case Result::kContained:
      return "go on from the last checkpoint (--resume auto) on another GPU: of this one memory or "
             "links fail (nvidia-smi -q -d ECC), until it is reset";
    case Result::kUnknown:
      return "look for an Xid of the GPU in the kernel's log (dmesg), and reset the GPU or restart "
             "the machine";
    case Result::kNoBinaryForGpu:
    case Result::kUnsupportedPtxVersion:
      return "update NVIDIA's driver: this one is older than what compiled the kernel";
    case Result::kSystemNotReady:
      return "start the service nvidia-fabricmanager";
    case Result::kSystemDriverMismatch:
      return "restart the machine: the driver was updated under its kernel module";
    case Result::kCompatNotSupported:
      return "take the folder cuda/compat out of LD_LIBRARY_PATH";
    default:
      break;
  }
  if (trouble_of(status.result) == Trouble::kDeviceLost) return kLostFix;
  return {};
}

}  // namespace

std::string no_device_fix() {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible == nullptr)
    return "see whether `nvidia-smi -L` lists a GPU and, where it is in MIG mode, a slice of it";
  return fmt::format(
      "unset CUDA_VISIBLE_DEVICES, which is '{}', or name in it what `nvidia-smi -L` "
      "lists",
      shortened(visible, 60));
}

Trouble trouble_of(Result result) {
  switch (result) {
    case Result::kOutOfMemory:
      return Trouble::kOutOfMemory;
    // All of which the reference says that the process must end to use the device again.
    case Result::kEccUncorrectable:
    case Result::kNvlinkUncorrectable:
    case Result::kContained:
    case Result::kIllegalAddress:
    case Result::kLaunchTimeout:
    case Result::kContextIsDestroyed:
    case Result::kAssert:
    case Result::kHardwareStackError:
    case Result::kIllegalInstruction:
    case Result::kMisalignedAddress:
    case Result::kInvalidAddressSpace:
    case Result::kInvalidPc:
    case Result::kLaunchFailed:
    case Result::kTensorMemoryLeak:
    case Result::kMpsClientTerminated:
    case Result::kExternalDevice:
      return Trouble::kDeviceLost;
    default:
      return Trouble::kOther;
  }
}

DriverLibrary::DriverLibrary(std::string name)
    : name_(std::move(name)), handle_(::dlopen(name_.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  // Never closed: the driver has threads of its own, which may be in its code to the last moment.
  if (handle_ != nullptr) return;
  const char* const reason = ::dlerror();
  throw UserError(
      fmt::format("no NVIDIA driver was found: cannot open '{}' ({})",
                  plain_line(name_),
                  reason == nullptr ? "no reason is given" : shortened(reason, kMostText)),
      fmt::format("install {}, or give the path of its libcuda.so.1 in RIDGE_CUDA_DRIVER",
                  kLeastDriver));
}

void* DriverLibrary::find(const char* function) {
  void* const found = ::dlsym(handle_, function);
  if (found == nullptr && missing_.empty()) missing_ = function;
  return found;
}

std::string Driver::default_name() {
  // The environment alone names what is loaded as code: a configuration may come from anywhere.
  const char* const named = std::getenv("RIDGE_CUDA_DRIVER");
  return named != nullptr && *named != '\0' ? named : "libcuda.so.1";
}

Driver::Driver(const std::string& name) : library(name) {
  check_version();
  check(init(0));
}

void Driver::check_version() {
  // The version first: what an old driver lacks follows from it.
  if (driver_get_version.is_there() && get_error_name.is_there() && get_error_string.is_there()) {
    check(driver_get_version(&version));
    if (version < kLeastVersion)
      throw UserError(fmt::format("the NVIDIA driver is too old: '{}' is for CUDA {}, Ridge needs "
                                  "{}.{}",
                                  plain_line(library.name()),
                                  version_text(),
                                  kLeastVersion / 1000,
                                  kLeastVersion % 1000 / 10),
                      fmt::format("update to {}", kLeastDriver));
  }
  if (!library.missing().empty())
    throw UserError(
        fmt::format("'{}' is no NVIDIA driver that Ridge can use: it has no function {}",
                    plain_line(library.name()),
                    library.missing()),
        fmt::format("install {}", kLeastDriver));
}

std::string Driver::version_text() const {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

void Driver::fail(Status status, const std::string& with) const {
  const char *name = nullptr, *text = nullptr;
  std::string error = fmt::format("error {}", static_cast<int>(status.result));
  if (get_error_name(status.result, &name).ok() && name != nullptr)
    error = shortened(name, kMostText);
  if (get_error_string(status.result, &text).ok() && text != nullptr)
    error = fmt::format("{} ({})", shortened(text, kMostText), error);
  throw CudaError(fmt::format("CUDA: {}{} failed: {}",
                              status.call,
                              with.empty() ? std::string{} : fmt::format("({})", with),
                              error),
                  fix_of(status),
                  status.call,
                  status.result);
}

}  // namespace ridge::cuda
