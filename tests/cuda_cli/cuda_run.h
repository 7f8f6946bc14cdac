// `ridge` as users run it, on a simulated GPU: the fake driver runs printed kernels as the fake
// NVRTC has compiled them for this machine.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/cli/ridge_process.h"
#include "tests/support/has.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge {

using nlohmann::json;
using test::Ended;
using test::has;
using test::lacks;
using test::text_of;

// Lines of a shell: the stand-ins for libraries are there.
inline const std::string kCublaslt =
    "export RIDGE_CUBLASLT=" RIDGE_FAKE_CUBLASLT " FAKE_CUBLASLT_DRIVER=" RIDGE_FAKE_CUDA ";";
inline const std::string kCudnn =
    "export RIDGE_CUDNN=" RIDGE_FAKE_CUDNN " FAKE_CUDNN_DRIVER=" RIDGE_FAKE_CUDA ";";

inline std::vector<std::string> words_of(const std::string& text) {
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

class CudaRun : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  /// `ridge WORDS` in the folder, behind `shell_` and these lines of a shell.
  Ended ridge(const std::string& words, const std::string& shell = {}) const {
    const std::string gpu =
        "export RIDGE_CUDA_DRIVER=" RIDGE_FAKE_CUDA " RIDGE_NVRTC=" RIDGE_FAKE_NVRTC
        // NVIDIA's own, where this machine has it, can do nothing with the stand-in.
        " RIDGE_CUBLASLT=none RIDGE_CUDNN=none;";
    test::RidgeProcess process(folder_.path(), words_of(words), gpu + shell_ + shell);
    process.set_limit(std::chrono::seconds(600));  // the first run compiles all kernels
    return process.wait();
  }
  /// The same, which has to succeed.
  Ended fine(const std::string& words, const std::string& shell = {}) const {
    Ended ended = ridge(words, shell);
    EXPECT_EQ(ended.code, 0) << words << "\n" << ended.err;
    return ended;
  }
  /// The error of a command that has to refuse.
  std::string error_of(const std::string& words, const std::string& shell = {}) const {
    const Ended ended = ridge(words, shell);
    EXPECT_EQ(ended.code, 2) << words << "\n" << ended.err;
    return ended.err;
  }

  test::TempFolder folder_;
  std::string shell_;
};

}  // namespace ridge
