// R15 of the doctor on programs in PyTorch whose mixed precision is known (tests/attach/programs/
// sick_amp.py): what it finds is what they do, by the recording of torch's own profiler.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "ridge/doctor/read/read_trace.h"
#include "ridge/doctor/rules/rules.h"
#include "tests/support/peers_python.h"
#include "tests/support/scale.h"
#include "tests/support/temp_folder.h"

namespace ridge::doctor {
namespace {

class MixedPrecision : public ::testing::Test {
 protected:
  void SetUp() override {
    if (python_.empty()) GTEST_SKIP() << test::kNoPeers;
    if (!test::is_full_scale()) GTEST_SKIP() << test::kOnlyFull;
  }

  /// Titles of what R15 finds, on a processor that multiplies 16-bit numbers twice as fast.
  std::vector<std::string> found_in(const std::string& mode) const {
    const test::TempFolder folder;
    const std::string trace_path = folder / "trace.json";
    const std::string command =
        fmt::format("timeout -k 1 280 '{}' -B tests/attach/programs/sick_amp.py {} '{}' >'{}' 2>&1",
                    python_,
                    mode,
                    trace_path,
                    (folder / "out").string());
    EXPECT_EQ(std::system(command.c_str()), 0) << mode;
    const Trace trace = read_trace(trace_path);
    Analysis analysis = analyse(trace);
    EXPECT_TRUE(analysis.is_cpu_only);
    analysis.short_products = 2;
    RuleOutput output;
    r15_mixed_precision(trace, analysis, output);
    std::vector<std::string> titles;
    for (const Finding& finding : output.findings) titles.push_back(finding.title);
    return titles;
  }

  std::string python_ = test::peers_python();
};

using Titles = std::vector<std::string>;

TEST_F(MixedPrecision, IsFoundInRealPrograms) {
  EXPECT_EQ(found_in("scaled"), Titles{});
  EXPECT_EQ(found_in("unscaled"), Titles{"gradients in FP16 without a GradScaler"});
  EXPECT_EQ(found_in("overflow"), Titles{"steps are thrown away: scaled gradients overflow"});
  EXPECT_EQ(found_in("island"), Titles{"products in FP32 beside those of 16 bits"});
}

}  // namespace
}  // namespace ridge::doctor
