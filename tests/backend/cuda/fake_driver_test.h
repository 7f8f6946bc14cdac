// Tests over the stand-in for NVIDIA's driver: it starts as new, and in the end nothing lives in it
// and nothing was done that no program may do.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ridge/backend/cuda/driver/device.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/stream.h"
#include "tests/backend/cuda/fake_driver/fake_cuda.h"

namespace ridge::cuda {

/// A function of the stand-in that lies in `path`: whoever opens that file has the same one.
template <typename Function>
Function* open_stand_in(const char* path, const char* name) {
  void* const library = ::dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  void* const found = ::dlsym(library, name);
  if (found == nullptr) throw std::runtime_error(::dlerror());
  return reinterpret_cast<Function*>(found);
}

/// The error that the body ends with; nothing where it ends well.
template <typename Error = CudaError, typename Body>
std::optional<Error> error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  return std::nullopt;
}

inline test::FakeCuda& open_fake(const char* path) {
  return *open_stand_in<test::FakeCudaEntry>(path, test::kFakeCudaEntry)();
}

class FakeDriverTest : public testing::Test {
 protected:
  using Schedule = test::FakeCuda::Schedule;

  FakeDriverTest() : fake_(open_fake(RIDGE_FAKE_CUDA)) { fake_.reset(); }
  void TearDown() override { expect_clean(); }

  static void expect_clean(const test::FakeCalls& fake) {
    EXPECT_EQ(fake.live(), std::vector<std::string>{});
    EXPECT_EQ(fake.faults(), std::vector<std::string>{});
  }
  void expect_clean() const { expect_clean(fake_); }
  static DeviceRef device(int number = 0) {
    return std::make_shared<const Device>(std::make_shared<const Driver>(RIDGE_FAKE_CUDA), number);
  }
  /// Whether the call only gives something back.
  static bool destroys(const std::string& call) {
    for (const char* part : {"Destroy", "Free", "Unload", "Release"})
      if (call.find(part) != std::string::npos) return true;
    return false;
  }
  /// Lines of a log that begin with one of the names.
  static std::vector<std::string> lines_of(const std::vector<std::string>& log,
                                           const std::vector<std::string>& names) {
    std::vector<std::string> found;
    for (const std::string& line : log)
      for (const std::string& name : names)
        if (line == name || line.starts_with(name + " ")) found.push_back(line);
    return found;
  }
  std::vector<std::string> lines(const std::vector<std::string>& names) const {
    return lines_of(fake_.log(), names);
  }

  test::FakeCuda& fake_;
};

/// A module of kernels in the form that the stand-in reads: names and types of parameters.
inline constexpr const char* kPtx = R"(
.version 8.0
.target sm_80
.visible .entry add(.param .u64 to, .param .f32 value, .param .u32 count) { ret; }
.visible .entry double_all(.param .u64 to, .param .u32 count) { ret; }
.visible .entry accumulate(.param .u64 to, .param .u64 from, .param .u32 count) { ret; }
)";

/// Those kernels, of a device.
class TestKernels {
 public:
  explicit TestKernels(const DeviceRef& gpu, unsigned shared_bytes = 0)
      : module_(gpu, kPtx, "kernels"),
        add_(module_.kernel("add", shared_bytes)),
        double_all_(module_.kernel("double_all")),
        accumulate_(module_.kernel("accumulate")) {}

  void add(Stream& stream,
           DevicePointer to,
           float value,
           uint32_t count,
           const LaunchShape& shape = {}) const {
    void* const arguments[] = {&to, &value, &count};
    launch(stream, add_, shape, arguments);
  }
  void double_all(Stream& stream,
                  DevicePointer to,
                  uint32_t count,
                  const LaunchShape& shape = {}) const {
    void* const arguments[] = {&to, &count};
    launch(stream, double_all_, shape, arguments);
  }
  void accumulate(Stream& stream, DevicePointer to, DevicePointer from, uint32_t count) const {
    void* const arguments[] = {&to, &from, &count};
    launch(stream, accumulate_, {}, arguments);
  }

 private:
  Module module_;
  Kernel add_, double_all_, accumulate_;
};

/// Registers what the kernels do: f32 values in device memory.
inline void register_kernels(test::FakeCuda& fake) {
  fake.on_kernel("add", [](const test::FakeLaunch& launch) {
    float* const to = launch.pointer<float>(0);
    for (uint32_t i = 0; i < launch.parameter<uint32_t>(2); ++i)
      to[i] += launch.parameter<float>(1);
    return 0;
  });
  fake.on_kernel("double_all", [](const test::FakeLaunch& launch) {
    float* const to = launch.pointer<float>(0);
    for (uint32_t i = 0; i < launch.parameter<uint32_t>(1); ++i) to[i] *= 2;
    return 0;
  });
  fake.on_kernel("accumulate", [](const test::FakeLaunch& launch) {
    const float* const from = launch.pointer<float>(1);
    float* const to = launch.pointer<float>(0);
    for (uint32_t i = 0; i < launch.parameter<uint32_t>(2); ++i) to[i] += from[i];
    return 0;
  });
}

}  // namespace ridge::cuda
