// NVML against a stand-in for its library (fake_nvml/), and against none.
#include "ridge/base/machine/nvml.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

/// Sets what the stand-in reads, and forgets it at the end.
class NvmlTest : public testing::Test {
 protected:
  void TearDown() override {
    for (const std::string& name : set_) ::unsetenv(name.c_str());
  }
  void set(const std::string& name, const std::string& value) {
    ::setenv(("FAKE_NVML_" + name).c_str(), value.c_str(), 1);
    set_.push_back("FAKE_NVML_" + name);
  }
  /// Why clocks are held, as the only device says for these bits.
  std::vector<std::string> words(const std::string& bits) {
    set("REASONS", bits);
    const std::vector<GpuSample> samples = Nvml(RIDGE_FAKE_NVML).sample();
    return samples.empty() ? std::vector<std::string>{"no sample"} : samples[0].held_by;
  }

 private:
  std::vector<std::string> set_;
};

TEST_F(NvmlTest, ADeviceTellsAll) {
  const Nvml nvml(RIDGE_FAKE_NVML);
  EXPECT_EQ(nvml.problem(), "");
  const std::vector<GpuSample> samples = nvml.sample();
  ASSERT_EQ(samples.size(), 1u);
  const GpuSample& gpu = samples[0];
  EXPECT_EQ(gpu.number, 0);
  EXPECT_EQ(gpu.name, "NVIDIA Fake 9000");
  EXPECT_EQ(gpu.uuid, "GPU-fa4e0000-0");
  EXPECT_DOUBLE_EQ(gpu.kernel_time, 0.87);
  EXPECT_DOUBLE_EQ(gpu.memory_time, 0.41);
  EXPECT_EQ(gpu.memory_bytes, int64_t{30} << 30);  // without what the driver keeps
  EXPECT_EQ(gpu.memory_total_bytes, int64_t{80} << 30);
  EXPECT_DOUBLE_EQ(gpu.watts, 412.5);
  EXPECT_DOUBLE_EQ(gpu.watts_limit, 700);
  EXPECT_DOUBLE_EQ(gpu.joules, 123456789.012);
  EXPECT_DOUBLE_EQ(gpu.sm_mhz, 1215);
  EXPECT_DOUBLE_EQ(gpu.most_sm_mhz, 1980);
  EXPECT_DOUBLE_EQ(gpu.celsius, 67);
  EXPECT_EQ(gpu.held_by, std::vector<std::string>{"power limit"});
}

TEST_F(NvmlTest, AnOldDriverTellsWhatItHas) {
  const Nvml nvml(RIDGE_FAKE_OLD_NVML);
  EXPECT_EQ(nvml.problem(), "");
  const std::vector<GpuSample> samples = nvml.sample();
  ASSERT_EQ(samples.size(), 1u);
  const GpuSample& gpu = samples[0];
  EXPECT_EQ(gpu.memory_bytes, int64_t{31} << 30);
  EXPECT_EQ(gpu.memory_total_bytes, int64_t{80} << 30);
  EXPECT_DOUBLE_EQ(gpu.watts, 412.5);
  EXPECT_EQ(gpu.watts_limit, -1);
  EXPECT_EQ(gpu.joules, -1);
  EXPECT_DOUBLE_EQ(gpu.celsius, 66);
  EXPECT_EQ(gpu.held_by, std::vector<std::string>{"power limit"});
}

TEST_F(NvmlTest, WhatIsNotSupportedOrNotAllowedIsUnknown) {
  set("RESULTS",
      "utilization=3,memory=3,memory_v2=4,power=3,power_limit=4,energy=3,clock=3,max_clock=999,"
      "temperature=3,temperature_v=3,event_reasons=3,throttle_reasons=3,name=3,uuid=13");
  const Nvml nvml(RIDGE_FAKE_NVML);
  const std::vector<GpuSample> samples = nvml.sample();
  ASSERT_EQ(samples.size(), 1u);
  const GpuSample& gpu = samples[0];
  EXPECT_EQ(gpu.name + gpu.uuid, "");
  for (const double value : {gpu.kernel_time,
                             gpu.memory_time,
                             gpu.watts,
                             gpu.watts_limit,
                             gpu.joules,
                             gpu.sm_mhz,
                             gpu.most_sm_mhz,
                             gpu.celsius})
    EXPECT_EQ(value, -1);
  EXPECT_EQ(gpu.memory_bytes, -1);
  EXPECT_EQ(gpu.memory_total_bytes, -1);
  EXPECT_TRUE(gpu.held_by.empty());
  EXPECT_EQ(nvml.problem(), "");
}

TEST_F(NvmlTest, NewNamesThatAreRefusedGiveWayToOldOnes) {
  set("RESULTS", "memory_v2=25,temperature_v=3,event_reasons=3");
  const std::vector<GpuSample> samples = Nvml(RIDGE_FAKE_NVML).sample();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].memory_bytes, int64_t{31} << 30);
  EXPECT_DOUBLE_EQ(samples[0].celsius, 66);
  EXPECT_EQ(samples[0].held_by.size(), 1u);
}

TEST_F(NvmlTest, ReasonsAreWords) {
  using Words = std::vector<std::string>;
  EXPECT_EQ(words("0"), Words{});
  EXPECT_EQ(words("0x1"), Words{"idle"});
  EXPECT_EQ(words("0x24"), (Words{"power limit", "thermal limit"}));
  EXPECT_EQ(words("0x48"), (Words{"hardware slowdown", "hardware thermal limit"}));
  EXPECT_EQ(words("0x80"), Words{"power brake"});
  EXPECT_EQ(words("0x1000"), Words{"reason 0x1000"});
  EXPECT_EQ(words("0x1ff").size(), 9u);
}

TEST_F(NvmlTest, EachDeviceOnce) {
  set("DEVICES", "8");
  const std::vector<GpuSample> samples = Nvml(RIDGE_FAKE_NVML).sample();
  ASSERT_EQ(samples.size(), 8u);
  for (int32_t i = 0; i < 8; ++i) {
    EXPECT_EQ(samples[static_cast<size_t>(i)].number, i);
    EXPECT_EQ(samples[static_cast<size_t>(i)].uuid, "GPU-fa4e0000-" + std::to_string(i));
  }
}

TEST_F(NvmlTest, ALostDeviceIsLeftOutAndNamedOnce) {
  set("DEVICES", "3");
  const Nvml nvml(RIDGE_FAKE_NVML);
  EXPECT_EQ(nvml.sample().size(), 3u);
  set("LOST", "1");
  for (int i = 0; i < 3; ++i) {
    const std::vector<GpuSample> samples = nvml.sample();
    ASSERT_EQ(samples.size(), 2u);
    EXPECT_EQ(samples[1].number, 2);
    EXPECT_EQ(nvml.problem(), "GPU 1: GPU is lost");
  }
}

TEST_F(NvmlTest, ADeviceThatIsNotOursIsNamed) {
  set("DEVICES", "2");
  set("HANDLE_0", "4");
  const Nvml nvml(RIDGE_FAKE_NVML);
  EXPECT_EQ(nvml.problem(), "GPU 0: Insufficient Permissions");
  const std::vector<GpuSample> samples = nvml.sample();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].number, 1);
}

TEST_F(NvmlTest, WhyThereIsNothing) {
  const Nvml none("libridge-no-such-library.so.7");
  EXPECT_EQ(none.problem(), "no NVIDIA driver (libridge-no-such-library.so.7)");
  EXPECT_TRUE(none.sample().empty());

  const Nvml other("libc.so.6");
  EXPECT_NE(other.problem().find("libc.so.6 is not NVIDIA's"), std::string::npos);
  EXPECT_TRUE(other.sample().empty());

  const test::TempFolder folder;
  const std::string text = folder / "libnvidia-ml.so.1";
  std::ofstream(text) << "no library at all";
  EXPECT_EQ(Nvml(text).problem(), "no NVIDIA driver (" + text + ")");

  const std::vector<std::tuple<std::string, std::string, std::string>> cases = {
      {"INIT", "9", "the NVIDIA driver does not answer"},
      {"COUNT", "18", "the NVIDIA driver shows no GPU"},
      {"DEVICES", "0", "the NVIDIA driver shows no GPU"}};
  for (const auto& [name, value, words] : cases) {
    set(name, value);
    const Nvml nvml(RIDGE_FAKE_NVML);
    EXPECT_TRUE(nvml.problem().starts_with(words)) << nvml.problem();
    EXPECT_TRUE(nvml.sample().empty());
    ::unsetenv(("FAKE_NVML_" + name).c_str());
  }
  set("INIT", "18");
  EXPECT_NE(Nvml(RIDGE_FAKE_NVML).problem().find("Driver/library version mismatch"),
            std::string::npos);
}

TEST_F(NvmlTest, NamesCannotControlATerminal) {
  set("NAME", "\x1b[2JGPU\xff\n");
  const std::vector<GpuSample> samples = Nvml(RIDGE_FAKE_NVML).sample();
  ASSERT_EQ(samples.size(), 1u);
  EXPECT_EQ(samples[0].name, "?[2JGPU\xef\xbf\xbd?");
}

TEST_F(NvmlTest, SeveralSideBySide) {
  const Nvml first(RIDGE_FAKE_NVML);
  {
    const Nvml second(RIDGE_FAKE_NVML);
  }
  EXPECT_EQ(first.sample().size(), 1u);
}

}  // namespace
}  // namespace ridge
