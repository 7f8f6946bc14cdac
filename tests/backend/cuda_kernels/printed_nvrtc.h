// NVIDIA's compiler for tests, where there is one.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/cuda/nvrtc.h"
#include "ridge/backend/cuda/print_kernel.h"
#include "ridge/base/error.h"
#include "ridge/base/function_ref.h"
#include "ridge/base/parallel.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/support/scale.h"

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

/// A kernel, for a generation of devices.
struct Compilation {
  const cuda::PrintedKernel* kernel;
  std::string architecture;
};

/// Compiles them side by side; then `look` sees what each kernel of each uses, in order. A large
/// kernel takes half a second: outside of the full form some twelve are compiled, spread over all.
inline void compile_all(
    std::vector<Compilation> all,
    FunctionRef<void(const Compilation& compilation, const KernelUse& use)> look) {
  const size_t step = is_full_scale() ? 1 : all.size() / 12 + 1;
  for (size_t i = 0; i * step < all.size(); ++i) all[i] = all[i * step];
  all.resize((all.size() + step - 1) / step);
  std::vector<std::vector<KernelUse>> uses(all.size());
  parallel_for(static_cast<int64_t>(all.size()), 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto& [kernel, architecture] = all[static_cast<size_t>(i)];
      uses[static_cast<size_t>(i)] =
          read_cubin(nvrtc()->compile(kernel->source, kernel->name, architecture));
    }
  });
  for (size_t i = 0; i < all.size(); ++i)
    for (const KernelUse& use : uses[i]) look(all[i], use);
}

}  // namespace ridge::test
