// NVIDIA's compiler for tests, where there is one.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <array>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ridge/backend/cuda/driver/nvrtc.h"
#include "ridge/backend/cuda/print/kernel.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/error.h"
#include "tests/backend/cuda_kernels/printed_cubin.h"
#include "tests/support/scale.h"

namespace ridge::test {

inline constexpr const char* kNoNvrtc =
    "no NVRTC: ./dev peers installs it, or name a libnvrtc.so.13 in RIDGE_NVRTC";

/// The NVRTC of the environment, else of the peers; null where there is none.
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

/// Each kernel compiles for a generation of devices, in turn, without local memory and within the
/// static shared memory of a block; then `look` sees its cubin and what it uses. A large kernel
/// takes half a second: outside of the full form, where all are compiled for all generations, some
/// are, spread over all. Of hundreds, which would take an hour, the full form compiles each for one
/// generation, and for another in each round: five rounds take all.
using Look = std::function<void(
    const cuda::PrintedKernel& kernel, const std::string& cubin, const KernelUse& use)>;
inline void expect_compile(const std::vector<cuda::PrintedKernel>& kernels,
                           const Look& look = nullptr) {
  constexpr std::array<const char*, 5> kArchitectures = {
      "sm_90", "sm_80", "sm_100", "sm_120", "sm_86"};
  constexpr size_t kGenerations = kArchitectures.size();
  constexpr size_t kMany = 400;
  const bool takes_turns = is_full_scale() && kernels.size() >= kMany;
  const size_t step = is_full_scale() ? 1 : kernels.size() / (is_short_scale() ? 6 : 24) + 1;
  const size_t each = is_full_scale() && !takes_turns ? kGenerations : 1;
  const size_t count = (kernels.size() + step - 1) / step * each;
  const auto kernel_of = [&](size_t i) -> const cuda::PrintedKernel& {
    return kernels[i / each * step];
  };
  const auto architecture_of = [&](size_t i) {
    return kArchitectures[(i + (takes_turns ? test_round() : 0)) % kGenerations];
  };
  std::vector<std::string> cubins(count);
  parallel_for(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end) {
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i)
      cubins[i] = nvrtc()->compile(kernel_of(i).source, kernel_of(i).name, architecture_of(i));
  });
  for (size_t i = 0; i < count; ++i)
    for (const KernelUse& use : read_cubin(cubins[i])) {
      SCOPED_TRACE(fmt::format("{} for {} by {} registers:\n{}",
                               use.entry,
                               architecture_of(i),
                               use.registers,
                               kernel_of(i).source));
      EXPECT_EQ(use.local_bytes, 0);
      EXPECT_LE(use.shared_bytes,
                49 << 10);  // 48 KiB, and what sm_90 and later keep for themselves
      if (look) look(kernel_of(i), cubins[i], use);
    }
}

}  // namespace ridge::test
