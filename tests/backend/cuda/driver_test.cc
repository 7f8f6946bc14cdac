// The driver as it is found, opened and refused, and what its errors say.
#include "ridge/backend/cuda/driver/driver.h"

#include <stdlib.h>

#include <fstream>

#include "ridge/backend/cuda/driver/arena.h"
#include "ridge/backend/cuda/driver/module.h"
#include "ridge/backend/cuda/driver/staging.h"
#include "tests/backend/cuda/fake_driver_test.h"
#include "tests/support/errors.h"
#include "tests/support/has.h"
#include "tests/support/temp_folder.h"

namespace ridge::cuda {
namespace {

using test::has;
using test::lacks;
using test::user_error;

class CudaDriver : public FakeDriverTest {};

TEST_F(CudaDriver, ADeviceTellsItsFacts) {
  fake_.devices = 2;
  const DeviceRef second = device(1);
  const DeviceFacts& facts = second->facts();
  EXPECT_EQ(facts.number, 1);
  EXPECT_EQ(facts.name, "NVIDIA Fake 9000");
  EXPECT_EQ(facts.uuid, "GPU-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe01");
  EXPECT_EQ(facts.limits.major, 9);
  EXPECT_EQ(facts.limits.minor, 0);
  EXPECT_EQ(facts.memory_bytes, int64_t{1} << 30);
  EXPECT_EQ(facts.limits.multiprocessors, 132);
  EXPECT_EQ(facts.copy_engines, 3);
  EXPECT_EQ(facts.l2_bytes, 50 << 20);
  EXPECT_EQ(facts.limits.shared_per_block, 227 << 10);
  EXPECT_EQ(facts.limits.shared_per_multiprocessor, 228 << 10);
  EXPECT_EQ(facts.limits.shared_reserved, 1 << 10);
  EXPECT_EQ(second->driver().version_text(), "13.2");
  const Arena arena(second, 1 << 20);
  EXPECT_EQ(second->memory_use().total, size_t{1} << 30);
  EXPECT_EQ(second->memory_use().free, (size_t{1} << 30) - (1 << 20));
}

TEST_F(CudaDriver, TheVersionIsAskedBeforeItIsStarted) {
  const Driver driver(RIDGE_FAKE_CUDA);
  EXPECT_EQ(fake_.log(), (std::vector<std::string>{"cuDriverGetVersion", "cuInit"}));
  fake_.version = 12000;  // the oldest
  EXPECT_EQ(Driver(RIDGE_FAKE_CUDA).version_text(), "12.0");
}

TEST_F(CudaDriver, AFileThatIsNoLibraryIsAnError) {
  const test::TempFolder folder;
  std::ofstream(folder / "libcuda.so.1") << "no library";
  EXPECT_THAT(user_error([&] { Driver((folder / "libcuda.so.1").string()); }),
              has("no NVIDIA driver was found"));
}

TEST_F(CudaDriver, AnotherLibraryIsAnError) {
  EXPECT_EQ(user_error([] { Driver("libm.so.6"); }),
            "'libm.so.6' is no NVIDIA driver that Ridge can use: it has no function "
            "cuDriverGetVersion; install NVIDIA's driver 525 (CUDA 12.0) or later");
}

TEST_F(CudaDriver, ALackingFunctionIsNamed) {
  EXPECT_THAT(user_error([] { Driver driver(RIDGE_FAKE_LACKING_CUDA); }),
              has("it has no function cuLaunchKernel; install"));
  // Nothing of it was started.
  EXPECT_EQ(open_fake(RIDGE_FAKE_LACKING_CUDA).log(),
            std::vector<std::string>{"cuDriverGetVersion"});
}

// Troubles that a GPU, or the setup of the machine, makes for a program: each error is one line
// that ends with one thing to do.
TEST_F(CudaDriver, EachTroubleSaysWhatToDo) {
  struct Case {
    std::vector<const char*> says;
    const char* call = "";  // the call that fails
    int code = 0;
    int devices = 1, number = 0;    // those there are, and the one that is asked for
    const char* visible = nullptr;  // CUDA_VISIBLE_DEVICES
  };
  const Case cases[] = {
      {.says = {"cuInit failed: no CUDA-capable device", "; see whether `nvidia-smi -L`"},
       .devices = 0},
      {.says = {"; unset CUDA_VISIBLE_DEVICES, which is ''"}, .devices = 0, .visible = ""},
      {.says = {"; unset CUDA_VISIBLE_DEVICES, which is '7'"}, .devices = 0, .visible = "7"},
      {.says = {"which is 'GPU-1', or name in it what `nvidia-smi -L` lists"},
       .devices = 0,
       .visible = "GPU-1"},
      {.says = {"cuda:1: the driver shows 1 (CUDA_VISIBLE_DEVICES is '3?'); give cuda:0"},
       .number = 1,
       .visible = "3\x1b"},
      {.says = {"no GPU cuda:1", "; give cuda:0: a program sees one MIG slice"},
       .number = 1,
       .visible = "MIG-1,MIG-2"},
      {.says = {"there is no GPU cuda:4: the driver shows 4; give cuda:0 to cuda:3"},
       .devices = 4,
       .number = 4},
      {.says = {"there is no GPU cuda:-1"}, .devices = 4, .number = -1},
      {{"cuDeviceGet(cuda:0) failed", "; see whether"}, "cuDeviceGet", 101},
      {{"(cuda:0) failed: out of memory", "; other programs"}, "cuDevicePrimaryCtxRetain", 2},
      {{"busy or unavailable", "; another process"}, "cuDevicePrimaryCtxRetain", 46},
      {{"64 bytes; ", "are free) failed", "; see with nvidia-smi"}, "cuMemAlloc_v2", 2},
      // Which is no lost device, and not said to be one.
      {{"DEVICE_UNAVAILABLE", "; see with nvidia-smi who holds the GPU, and go on from the last"},
       "cuMemAlloc_v2",
       46},
      {{"ECC", "; go on from the last checkpoint", "another GPU"}, "cuMemAlloc_v2", 214},
      {{"LAUNCH_FAILED", "; start again from the last checkpoint"}, "cuMemAlloc_v2", 719},
      {{"error 999", "; look for an Xid"}, "cuMemAlloc_v2", 999},
  };
  for (const Case& each : cases) {
    fake_.reset();
    fake_.devices = each.devices;
    if (each.visible != nullptr) ::setenv("CUDA_VISIBLE_DEVICES", each.visible, 1);
    if (each.code != 0) fake_.fail(each.call, 1, each.code);
    const std::string error = user_error([&] { Arena(device(each.number), 64); });
    ::unsetenv("CUDA_VISIBLE_DEVICES");
    for (const char* text : each.says) EXPECT_THAT(error, has(text));
    EXPECT_THAT(error, lacks("\n"));
  }
}

TEST_F(CudaDriver, ASliceIsNamedAsNvidiasToolsNameIt) {
  fake_.device_name = "NVIDIA H100 80GB HBM3 MIG 1g.10gb";
  EXPECT_EQ(device()->facts().uuid, "MIG-f0f1f2f3-f4f5-f6f7-f8f9-fafbfcfdfe00");
}

TEST_F(CudaDriver, TheEnvironmentNamesTheDriver) {
  ::unsetenv("RIDGE_CUDA_DRIVER");
  EXPECT_EQ(Driver::default_name(), "libcuda.so.1");
  ::setenv("RIDGE_CUDA_DRIVER", RIDGE_FAKE_CUDA, 1);
  EXPECT_EQ(open_device(0)->facts().name, "NVIDIA Fake 9000");
  ::setenv("RIDGE_CUDA_DRIVER", "", 1);
  EXPECT_EQ(Driver::default_name(), "libcuda.so.1");
  ::unsetenv("RIDGE_CUDA_DRIVER");
}

TEST_F(CudaDriver, OutOfMemorySaysHowMuchThereIs) {
  const DeviceRef gpu = device();
  const Arena first(gpu, 1000);
  const auto error = error_of([&] { Arena(gpu, size_t{2} << 30); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->trouble(), Trouble::kOutOfMemory);
  EXPECT_EQ(error->call(), "cuMemAlloc_v2");
  EXPECT_EQ(error->message(),
            "CUDA: cuMemAlloc_v2(2147483648 bytes; 1073740824 of 1073741824 bytes are free) "
            "failed: out of memory (CUDA_ERROR_OUT_OF_MEMORY)");
  EXPECT_THAT(error->fix(), has("nvidia-smi"));
  // The device goes on.
  const Arena second(gpu, 1000);
  EXPECT_EQ(gpu->memory_use().free, (size_t{1} << 30) - 2000);
}

TEST_F(CudaDriver, HostMemoryThatCannotBeLockedHasAFixOfItsOwn) {
  const DeviceRef gpu = device();
  fake_.fail("cuMemHostAlloc", 1, 2);
  EXPECT_THAT(
      user_error([&] { PinnedMemory(gpu, 4096); }),
      has("cuMemHostAlloc(4096 bytes of page-locked host memory) failed", "memory of the host"));
}

TEST_F(CudaDriver, ACodeWithoutNameIsANumber) {
  const DeviceRef gpu = device();
  fake_.fail("cuStreamCreate", 1, 98765);
  EXPECT_EQ(user_error([&] { Stream{gpu}; }), "CUDA: cuStreamCreate failed: error 98765");
}

TEST_F(CudaDriver, ALostDeviceIsToldApart) {
  const DeviceRef gpu = device();
  const TestKernels kernels(gpu);
  fake_.on_kernel("add", [](const test::FakeLaunch&) { return 700; });
  Stream stream(gpu);
  const Arena arena(gpu, 64);
  const auto launch_add = [&] { kernels.add(stream, arena.at(0, 64), 1, 16); };
  launch_add();  // which the kernel's failure does not reach yet
  const auto error = error_of([&] { stream.synchronize(); });
  ASSERT_TRUE(error);
  EXPECT_EQ(error->trouble(), Trouble::kDeviceLost);
  EXPECT_EQ(error->call(), "cuStreamSynchronize");
  EXPECT_THAT(error->what(), has("an illegal memory access was encountered"));
  EXPECT_THAT(error->fix(), has("--resume auto"));
  EXPECT_THAT(user_error(launch_add), has("kernel 'add'"));
  EXPECT_THAT(user_error([&] { Arena(gpu, 8); }), has("illegal memory access"));
}

TEST_F(CudaDriver, CodesAreSorted) {
  for (const int code : {214, 220, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})
    EXPECT_EQ(trouble_of(Result{code}), Trouble::kDeviceLost) << code;
  EXPECT_EQ(trouble_of(Result{2}), Trouble::kOutOfMemory);
  for (const int code : {1, 46, 100, 201, 400, 600, 701, 901, 999})
    EXPECT_EQ(trouble_of(Result{code}), Trouble::kOther) << code;
}

TEST_F(CudaDriver, AKernelOrModuleThatIsNotThereIsNamed) {
  const DeviceRef gpu = device();
  const Module module(gpu, kPtx, "kernels");
  EXPECT_THAT(user_error([&] { static_cast<void>(module.kernel("subtract")); }),
              has("cuModuleGetFunction(kernel 'subtract' of 'kernels') failed"));
  EXPECT_THAT(user_error([&] { Module(gpu, "what is this", "noise"); }),
              has("cuModuleLoadDataEx('noise': ptxas fatal   : no entry in the text)"));
}

TEST_F(CudaDriver, ALaunchThatIsRefusedNamesTheKernelAndItsShape) {
  const DeviceRef gpu = device();
  const Module module(gpu, kPtx, "kernels");
  Stream stream(gpu);
  DevicePointer to = 0;
  uint32_t count = 0;
  void* const arguments[] = {&to, &count};
  const LaunchShape shape{.grid_x = 7, .block_x = 2048, .shared_bytes = 64};
  EXPECT_THAT(
      user_error([&] { launch(stream, module.kernel("double_all"), shape, arguments); }),
      has("cuLaunchKernel(kernel 'double_all', grid 7x1x1, block 2048x1x1, 64 bytes of shared "
          "memory) failed: invalid argument"));
  // More shared memory than usual is there for those who asked.
  const LaunchShape large{.block_x = 32, .shared_bytes = 100 << 10};
  const Kernel asked = module.kernel("double_all", 100 << 10);
  EXPECT_EQ(lines({"cuFuncSetAttribute"}),
            std::vector<std::string>{"cuFuncSetAttribute double_all 8=102400"});
  launch(stream, asked, large, arguments);
}

}  // namespace
}  // namespace ridge::cuda
