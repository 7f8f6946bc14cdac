// Printed kernels in the library: compiled together, each source once, and the same errors and
// modules for any number of threads.
#include <cstdlib>
#include <thread>

#include "ridge/backend/cuda/printed_node.h"
#include "ridge/base/cpu/parallel.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/fake_nvrtc/fake_nvrtc.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"

namespace ridge::cuda {
namespace {

using test::FakeNvrtcControl;
using test::has;
using test::user_error;
using Held = std::vector<std::shared_ptr<KernelLibrary::Shared>>;

constexpr int kKernels = 8;

std::shared_ptr<const PrintedKernel> kernel_of(int number) {
  PrintedKernel kernel;
  kernel.name = fmt::format("kernel_{}", number);
  kernel.source = fmt::format("extern \"C\" __global__ void k{}(float* to) {{}}\n", number);
  kernel.launches.push_back({.entry = fmt::format("k{}", number), .operands = {}});
  return std::make_shared<const PrintedKernel>(std::move(kernel));
}

class CudaKernelLibrary : public FakeDriverTest {
 protected:
  CudaKernelLibrary()
      : control_(*open_stand_in<test::FakeNvrtcControlEntry>(RIDGE_FAKE_NVRTC,
                                                             test::kFakeNvrtcControl)()),
        threads_(num_threads()) {
    ::setenv("RIDGE_NVRTC", RIDGE_FAKE_NVRTC, 1);
    clear();
    control_.makes_empty = true;
  }
  ~CudaKernelLibrary() override {
    clear();
    control_.makes_empty = false;
    set_num_threads(threads_);
    ::unsetenv("RIDGE_NVRTC");
  }
  void clear() {
    control_.compilations = 0, control_.most_at_once = 0, control_.meeting = 0;
    control_.refused.clear();
  }
  static std::unique_ptr<KernelLibrary> make_library() {
    return std::make_unique<KernelLibrary>(device(), Nvrtc::open(), std::filesystem::path{});
  }
  static Held add_all(KernelLibrary& library) {
    Held held;
    for (int i = 0; i < kKernels; ++i) held.push_back(library.add(kernel_of(i)));
    return held;
  }

  FakeNvrtcControl& control_;
  int threads_;
};

TEST_F(CudaKernelLibrary, TheyAreCompiledTogetherAndEachOnce) {
  for (const int threads : {1, 2, 4}) {
    SCOPED_TRACE(threads);
    fake_.reset();
    clear();
    set_num_threads(threads);
    control_.meeting = threads;
    const auto library = make_library();
    const Held held = add_all(*library), others = add_all(*library);
    EXPECT_EQ(held, others);
    EXPECT_EQ(control_.compilations, 0);
    for (const auto& kernel : held) library->load(*kernel);
    EXPECT_EQ(control_.compilations, kKernels);
    EXPECT_EQ(control_.most_at_once, threads);
    // The driver is asked in the order of those who ask.
    std::vector<std::string> wanted;
    for (int i = 0; i < kKernels; ++i)
      wanted.push_back(fmt::format("cuModuleGetFunction module{} k{}", i + 1, i));
    EXPECT_EQ(lines({"cuModuleGetFunction"}), wanted);
  }
}

TEST_F(CudaKernelLibrary, AnErrorIsToldByTheKernelThatHasIt) {
  for (const int threads : {1, 4}) {
    SCOPED_TRACE(threads);
    clear();
    set_num_threads(threads);
    control_.refused = {"void k5(", "void k2("};
    const auto library = make_library();
    const Held held = add_all(*library);
    for (int i = 0; i < kKernels; ++i) {
      const std::string message = user_error([&] { library->load(*held[static_cast<size_t>(i)]); });
      if (i == 2 || i == 5)
        EXPECT_THAT(message, has(fmt::format("[nvrtc] kernel 'kernel_{}' does not compile", i)));
      else
        EXPECT_EQ(message, "no error");
    }
    EXPECT_EQ(control_.compilations, kKernels);
    // Told as often as it is asked for, and tried anew once nobody holds the failed one.
    EXPECT_NE(user_error([&] { library->load(*held[2]); }), "no error");
    EXPECT_EQ(control_.compilations, kKernels);
  }
}

TEST_F(CudaKernelLibrary, ManyThreadsMayAsk) {
  const auto library = make_library();
  const Held held = add_all(*library);
  std::vector<std::vector<const KernelLibrary::Loaded*>> found(4);
  std::vector<std::thread> asking;
  for (size_t t = 0; t < found.size(); ++t)
    asking.emplace_back([&, t] {
      // Each in another order.
      for (size_t i = 0; i < held.size(); ++i) library->load(*held[(i + 3 * t) % held.size()]);
      for (const auto& each : held) found[t].push_back(&library->load(*each));
    });
  for (std::thread& each : asking) each.join();
  EXPECT_EQ(control_.compilations, kKernels);
  for (size_t t = 1; t < found.size(); ++t) EXPECT_EQ(found[t], found[0]);
}

TEST_F(CudaKernelLibrary, WhatNobodyHoldsIsGone) {
  const auto library = make_library();
  auto first = library->add(kernel_of(0));
  library->add(kernel_of(1));  // a plan adds kernels so, to ask how much workspace they take
  library->load(*first);
  EXPECT_EQ(control_.compilations, 1);
  first.reset();
  EXPECT_EQ(lines({"cuModuleUnload"}).size(), 1u);
  first = library->add(kernel_of(0));
  library->load(*first);
  EXPECT_EQ(control_.compilations, 2);
}

// A launch gets 48 KiB without asking, of which static memory is a part: little dynamic memory has
// to be asked for too.
TEST_F(CudaKernelLibrary, DynamicSharedMemoryIsAskedFor) {
  const auto library = make_library();
  const auto load = [&](size_t bytes) {
    auto printed = std::make_shared<PrintedKernel>(*kernel_of(static_cast<int>(bytes)));
    printed->launches[0].shared_bytes = bytes;
    library->load(*library->add(printed));
    return lines({"cuFuncSetAttribute"});
  };
  EXPECT_EQ(load(0), std::vector<std::string>{});
  EXPECT_EQ(load(16), std::vector<std::string>{"cuFuncSetAttribute k16 8=16"});
}

TEST_F(CudaKernelLibrary, StaticSharedMemoryCountsBesideTheDynamic) {
  PrintedKernel kernel = *kernel_of(0);
  kernel.launches[0].shared_bytes = 1000;
  EXPECT_EQ(launch_refusal(kernel, {.shared_per_block = 1000}), "");
  kernel.launches[0].static_shared_bytes = 1;
  EXPECT_EQ(launch_refusal(kernel, {.shared_per_block = 1000}),
            "takes 1001 bytes of shared memory a block, and the device has 1000");
}

// Compiled for the device itself where that is known, else as PTX of what is next before it.
TEST_F(CudaKernelLibrary, AnUnknownDeviceGetsWhatTheDriverCompiles) {
  struct Case {
    int major, minor;
    const char* target;
  };
  for (const Case& each : {Case{8, 0, "sm_80"},
                           Case{12, 1, "sm_121"},
                           Case{13, 0, "compute_121"},
                           Case{10, 7, "compute_103"},
                           Case{7, 0, "sm_70"}})
    EXPECT_EQ(Nvrtc::open()->target_for(each.major, each.minor), each.target);
  fake_.major = 13, fake_.minor = 0;
  const auto library = make_library();
  const auto kernel = library->add(kernel_of(0));
  EXPECT_EQ(library->load(*kernel).kernels.size(), 1u);
}

// A driver loads kernels of its own major version of CUDA and of earlier ones.
TEST_F(CudaKernelLibrary, TheCompilerFitsTheDriver) {
  struct Case {
    const char* compiler;
    int driver;
    const char *version = "", *package = "";  // driver and package that an error names
  };
  for (const auto& [compiler, driver, version, package] :
       {Case{"13", 13000},
        Case{"13", 12040, "12.4", "nvidia-cuda-nvrtc-cu12`"},
        Case{"12", 12040},
        Case{"12", 13000},
        Case{"14", 13020, "13.2", "nvidia-cuda-nvrtc`"}}) {
    ::setenv("FAKE_NVRTC_MAJOR", compiler, 1);
    const std::string message = user_error([&] { Nvrtc::open(driver); });
    ::unsetenv("FAKE_NVRTC_MAJOR");
    const std::string why = fmt::format(
        "is of CUDA {}, whose kernels NVIDIA's driver, which is for CUDA {}, cannot load",
        compiler,
        version);
    if (*version == '\0')
      EXPECT_EQ(message, "no error");
    else
      EXPECT_THAT(message, has(why, package));
  }
}

}  // namespace
}  // namespace ridge::cuda
