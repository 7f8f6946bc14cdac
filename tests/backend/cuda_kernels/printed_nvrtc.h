// NVIDIA's compiler for tests, where there is one.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <memory>

#include "ridge/backend/cuda/nvrtc.h"
#include "ridge/base/error.h"

namespace ridge::test {

inline constexpr const char* kNoNvrtc =
    "no NVRTC: ./dev peers installs it, or name a libnvrtc.so.13 in RIDGE_NVRTC";

/// That of the environment, else of the peers; null where there is none.
inline std::shared_ptr<const cuda::Nvrtc> nvrtc() {
  static const std::shared_ptr<const cuda::Nvrtc> opened =
      []() -> std::shared_ptr<const cuda::Nvrtc> {
    if (::getenv("RIDGE_NVRTC") == nullptr && std::filesystem::exists("build/peers"))
      ::setenv("VIRTUAL_ENV", std::filesystem::absolute("build/peers").c_str(), 1);
    try {
      return cuda::Nvrtc::open();
    } catch (const UserError&) {
      return nullptr;
    }
  }();
  return opened;
}

}  // namespace ridge::test
