// Printed kernels in the library: compiled together, each source once, and the same errors and
// modules for any number of threads.
#include <algorithm>
#include <cstdlib>
#include <thread>

#include "ridge/backend/cuda/printed_node.h"
#include "ridge/base/parallel.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/backend/cuda/fake_nvrtc/fake_nvrtc.h"
#include "tests/support/errors.h"

namespace ridge::cuda {
namespace {

using test::FakeNvrtcControl;
using test::user_error;
using Held = std::vector<std::shared_ptr<KernelLibrary::Shared>>;

constexpr int kKernels = 8;

FakeNvrtcControl& open_control() {
  void* const library = ::dlopen(RIDGE_FAKE_NVRTC, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(::dlerror());
  auto* const entry =
      reinterpret_cast<test::FakeNvrtcControlEntry*>(::dlsym(library, test::kFakeNvrtcControl));
  return *entry();
}

std::shared_ptr<const PrintedKernel> kernel_of(int number) {
  PrintedKernel kernel;
  kernel.name = fmt::format("kernel_{}", number);
  kernel.source = fmt::format("extern \"C\" __global__ void k{}(float* to) {{}}\n", number);
  kernel.launches.push_back({.entry = fmt::format("k{}", number), .operands = {}});
  return std::make_shared<const PrintedKernel>(std::move(kernel));
}

class CudaKernelLibrary : public FakeDriverTest {
 protected:
  CudaKernelLibrary() : control_(open_control()), threads_(num_threads()) {
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
        EXPECT_NE(message.find(fmt::format("[nvrtc] kernel 'kernel_{}' does not compile", i)),
                  std::string::npos)
            << message;
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
      for (size_t i = 0; i < held.size(); ++i)
        found[t].push_back(&library->load(*held[(i + 3 * t) % held.size()]));
      std::rotate(found[t].begin(),
                  found[t].begin() +
                      static_cast<ptrdiff_t>((held.size() - 3 * t % held.size()) % held.size()),
                  found[t].end());
    });
  for (std::thread& each : asking) each.join();
  EXPECT_EQ(control_.compilations, kKernels);
  for (size_t t = 1; t < found.size(); ++t) EXPECT_EQ(found[t], found[0]);
}

TEST_F(CudaKernelLibrary, WhatNobodyHoldsIsGone) {
  const auto library = make_library();
  auto first = library->add(kernel_of(0));
  library->add(kernel_of(1));  // as a plan does that asks how much workspace it takes
  library->load(*first);
  EXPECT_EQ(control_.compilations, 1);
  first.reset();
  EXPECT_EQ(lines({"cuModuleUnload"}).size(), 1u);
  first = library->add(kernel_of(0));
  library->load(*first);
  EXPECT_EQ(control_.compilations, 2);
}

}  // namespace
}  // namespace ridge::cuda
