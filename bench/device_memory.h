// The bytes that a GPU's driver counts as allocated, by whichever process.
#pragma once

#include <dlfcn.h>

#include <charconv>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "ridge/base/error.h"
#include "ridge/train/process_memory.h"

namespace ridge {

/// Bytes of GPU `number` that are not free. Its backend has to be open: this takes the same context
/// of the same driver, which is then there already and costs nothing.
inline int64_t gpu_bytes_taken(int number) {
  const char* const named = std::getenv("RIDGE_CUDA_DRIVER");
  const char* const path = named != nullptr && *named != '\0' ? named : "libcuda.so.1";
  void* const driver = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  check(driver != nullptr, "cannot open '{}': {}", path, ::dlerror());
  const auto call = [&](const char* name, auto... arguments) {
    using Function = int(decltype(arguments)...);
    auto* const function = reinterpret_cast<Function*>(::dlsym(driver, name));
    check(function != nullptr, "'{}' has no function {}", path, name);
    const int code = function(arguments...);
    check(code == 0, "{} failed with {}", name, code);
  };
  int device = 0;
  void* context = nullptr;
  size_t free = 0, total = 0;
  call("cuDeviceGet", &device, number);
  call("cuDevicePrimaryCtxRetain", &context, device);
  call("cuCtxSetCurrent", context);
  call("cuCtxSynchronize");
  call("cuMemGetInfo_v2", &free, &total);
  call("cuDevicePrimaryCtxRelease_v2", device);
  return static_cast<int64_t>(total - free);
}

/// Bytes allocated on `device`: for a GPU, by all processes, as its driver counts them; else
/// resident memory of this process.
inline int64_t bytes_taken(std::string_view device) {
  if (!device.starts_with("cuda")) return resident_anonymous_bytes();
  int number = 0;
  if (const size_t colon = device.find(':'); colon != std::string_view::npos)
    std::from_chars(device.data() + colon + 1, device.data() + device.size(), number);
  return gpu_bytes_taken(number);
}

}  // namespace ridge
