// `--device cuda` as users run it, with a driver and without.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cuda_cli/cuda_run.h"

namespace ridge {
namespace {

const std::string kTrain = "train mlp.toml --device cuda";

class CudaDriver : public testing::Test {
 protected:
  CudaDriver() {
    std::ofstream(folder_ / "mlp.toml")
        << "[model]\nkind = 'mlp'\nhidden = [8]\noutputs = 3\n[data]\nkind = 'random'\n"
           "shape = [4]\nsamples = 64\nclasses = 3\n[train]\nbatch = 16\nsteps = 4\n";
  }

  /// Runs `ridge WORDS` with these lines of a shell before, and expects one line of error.
  std::string error_of(const std::string& words, const std::string& shell) {
    const Ended ended = test::ridge(folder_.path(), words_of(words), shell);
    EXPECT_EQ(ended.code, 2) << words << "\n" << ended.err;
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, testing::StartsWith("error: "));
    EXPECT_EQ(std::count(ended.err.begin(), ended.err.end(), '\n'), 1) << ended.err;
    return ended.err;
  }

  /// The output of a program of the system.
  std::string printed(const std::string& program, const std::vector<std::string>& words) const {
    const Ended ended = test::RidgeProcess(folder_.path(), words, "", program).wait();
    EXPECT_EQ(ended.code, 0) << program << "\n" << ended.err;
    return ended.out;
  }

  const std::string no_driver_ = "export RIDGE_CUDA_DRIVER=/nowhere/libcuda.so.1;";
  const std::string driver_ = "export RIDGE_CUDA_DRIVER=" RIDGE_FAKE_CUDA ";";
  const std::string no_compiler_ = "export RIDGE_NVRTC=/nowhere/libnvrtc.so.13;";
  test::TempFolder folder_;
};

TEST_F(CudaDriver, WithoutADriverThatIsSaid) {
  for (const char* verb : {"train mlp.toml",
                           "optimize mlp.toml",
                           "eval mlp.toml --weights none",
                           "inspect mlp.toml --plan",
                           "calibrate"})
    for (const char* device : {"cuda", "cuda:0", "cuda:3"})
      EXPECT_THAT(error_of(std::string(verb) + " --device " + device, no_driver_),
                  has("no NVIDIA driver was found: cannot open '/nowhere/libcuda.so.1'",
                      "RIDGE_CUDA_DRIVER"));
  // Nothing was begun.
  EXPECT_EQ(folder_.names(), (std::vector<std::string>{".err", ".out", "mlp.toml"}));
}

TEST_F(CudaDriver, ADriverIsLookedForUnderItsOwnName) {
  if (void* const library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL)) {
    ::dlclose(library);
    GTEST_SKIP() << "this machine has a driver";
  }
  EXPECT_THAT(error_of(kTrain, "unset RIDGE_CUDA_DRIVER;"),
              has("no NVIDIA driver was found: cannot open 'libcuda.so.1'"));
}

TEST_F(CudaDriver, WithADriverItNeedsACompilerAndALibraryOfProducts) {
  const std::string no_products =
      "export RIDGE_NVRTC=" RIDGE_FAKE_NVRTC " RIDGE_CUBLASLT=/nowhere/libcublasLt.so.13;";
  for (const char* verb : {"train mlp.toml", "optimize mlp.toml", "calibrate"})
    for (const char* device : {"cuda", "cuda:1"}) {
      const std::string words = std::string(verb) + " --device " + device;
      const std::string two = driver_ + "export FAKE_CUDA_DEVICES=2;";
      EXPECT_THAT(error_of(words, two + no_compiler_),
                  has("cannot open the compiler of CUDA kernels",
                      "looked for /nowhere/libnvrtc.so.13",
                      "pip install nvidia-cuda-nvrtc",
                      "RIDGE_NVRTC"));
      EXPECT_THAT(error_of(words, two + no_products),
                  has("cannot open the library of matrix products",
                      "looked for /nowhere/libcublasLt.so.13",
                      "pip install nvidia-cublas",
                      "RIDGE_CUBLASLT"));
    }
}

TEST_F(CudaDriver, WhatTheDriverRefusesIsSaid) {
  const auto expect = [&](const std::string& environment, const auto& says) {
    EXPECT_THAT(error_of(kTrain, driver_ + "export " + environment + ";"), says) << environment;
  };
  expect("FAKE_CUDA_VERSION=11080",
         has("too old", "is for CUDA 11.8, Ridge needs 12.0; update to NVIDIA's driver 525"));
  expect("FAKE_CUDA_DEVICES=0",
         has("cuInit failed: no CUDA-capable device is detected", "nvidia-smi"));
  expect("FAKE_CUDA_FAIL=cuInit=803",
         has("CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "restart the machine"));
  expect("FAKE_CUDA_MAJOR=7", has("NVIDIA Fake 9000 of compute capability 7.0, Ridge needs 8.0"));
  expect("RIDGE_CUDA_DRIVER=" RIDGE_FAKE_LACKING_CUDA, has("no function cuLaunch"));
  expect("FAKE_CUDA_VERSION=12040 RIDGE_NVRTC=" RIDGE_FAKE_NVRTC,
         has("of CUDA 13, whose kernels NVIDIA's driver, which is for CUDA 12.4, cannot load",
             "pip install nvidia-cuda-nvrtc-cu12"));
  EXPECT_THAT(error_of(kTrain + ":1", driver_), has("there is no GPU cuda:1", "give cuda:0"));
}

TEST_F(CudaDriver, NothingIsLeftOnTheDevice) {
  const std::string log = (folder_ / "log").string();
  error_of(kTrain, driver_ + no_compiler_ + "export FAKE_CUDA_LOG=" + log + ";");
  EXPECT_THAT(test::text_of(log),
              testing::AllOf(has("cuDevicePrimaryCtxRetain\n"),
                             testing::EndsWith("cuDevicePrimaryCtxRelease_v2\n")));
}

TEST_F(CudaDriver, ADeviceThatIsNoneIsNamed) {
  for (const char* name : {"cuda:", "cuda:x", "cuda:-1", "cuda:0x", "cuda:99999999999"})
    EXPECT_THAT(error_of(std::string("train mlp.toml --device ") + name, driver_),
                has(std::string("device '") + name + "' names no GPU; write it as cuda:0"));
  EXPECT_THAT(error_of("train mlp.toml --device cudo", driver_), has("unknown device 'cudo'"));
}

TEST_F(CudaDriver, TheProgramNeedsNothingOfCuda) {
  const std::string needed = printed("ldd", {RIDGE_PROGRAM});
  EXPECT_THAT(needed, has("libridge"));  // it is a list of libraries
  std::istringstream lines(needed);
  for (std::string line; std::getline(lines, line);)
    for (const char* part : {"cuda", "nvidia", "cublas", "cudnn", "nvrtc", "nccl", "cupti"})
      // Behind the arrow stands where it was found.
      EXPECT_EQ(line.substr(0, line.find("=>")).find(part), std::string::npos) << line;
}

}  // namespace
}  // namespace ridge
