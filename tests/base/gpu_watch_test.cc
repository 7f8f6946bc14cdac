// One GPU watched through the stand-in for NVML.
#include "ridge/base/machine/gpu_watch.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>

#include "tests/support/comes.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

constexpr const char* kUuid = "GPU-fa4e0000-0";

class GpuWatchTest : public testing::Test {
 protected:
  GpuWatchTest() { set("MILLIJOULES", "5000"); }
  ~GpuWatchTest() override {
    for (const char* name : {"MILLIJOULES", "REASONS", "LOST_FILE", "INIT", "RESULTS"})
      ::unsetenv(("FAKE_NVML_" + std::string(name)).c_str());
  }
  static void set(const char* name, const char* value) {
    ::setenv(("FAKE_NVML_" + std::string(name)).c_str(), value, 1);
  }
  /// Waits until the watch reports a sample that `is_there` accepts.
  template <typename F>
  static bool comes(const GpuWatch& watch, F is_there) {
    return test::comes([&] {
      GpuReading look;
      watch.latest(look);
      return is_there(look);
    });
  }
};

TEST_F(GpuWatchTest, TheFirstLookIsThereAtOnce) {
  set("REASONS", "0x24");
  const GpuWatch watch(kUuid, 1'000'000, RIDGE_FAKE_NVML);
  EXPECT_EQ(watch.problem(), "");
  GpuReading look;
  watch.latest(look);
  EXPECT_DOUBLE_EQ(look.watts, 412.5);
  EXPECT_DOUBLE_EQ(look.joules, 0);
  EXPECT_DOUBLE_EQ(look.sm_mhz, 1215);
  EXPECT_DOUBLE_EQ(look.celsius, 67);
  EXPECT_EQ(look.memory_bytes, int64_t{30} << 30);
  EXPECT_EQ(look.held_by, "power limit, thermal limit");
  // And it ends at once, whatever its period is.
}

TEST_F(GpuWatchTest, LaterLooksFollow) {
  // The environment stays as it is while the watch's thread reads it.
  const test::TempFolder folder;
  set("MILLIJOULES", "5000+2500");
  set("LOST_FILE", (folder / "lost").c_str());
  const GpuWatch watch(kUuid, 20, RIDGE_FAKE_NVML);
  EXPECT_TRUE(comes(watch, [](const GpuReading& look) { return look.joules > 0; }));
  std::ofstream(folder / "lost") << "";
  EXPECT_TRUE(comes(watch, [](const GpuReading& look) { return look.watts == -1; }));
  GpuReading look;
  watch.latest(look);
  EXPECT_EQ(look.joules, -1);
  EXPECT_EQ(look.memory_bytes, -1);
  EXPECT_EQ(look.held_by, "");
}

TEST_F(GpuWatchTest, WhatIsNotToldIsNotMadeUp) {
  set("RESULTS", "energy=3,power=3");
  const GpuWatch watch(kUuid, 1'000'000, RIDGE_FAKE_NVML);
  GpuReading look;
  watch.latest(look);
  EXPECT_EQ(look.joules, -1);
  EXPECT_EQ(look.watts, -1);
  EXPECT_DOUBLE_EQ(look.sm_mhz, 1215);
}

TEST_F(GpuWatchTest, WithoutTheGpuItSaysWhy) {
  EXPECT_EQ(GpuWatch("GPU-another", 1, RIDGE_FAKE_NVML).problem(),
            "the driver's NVML shows no GPU GPU-another");
  EXPECT_EQ(GpuWatch(kUuid, 1, "/nowhere/libnvidia-ml.so.1").problem(),
            "no NVIDIA driver (/nowhere/libnvidia-ml.so.1)");
  set("INIT", "9");
  EXPECT_NE(GpuWatch(kUuid, 1, RIDGE_FAKE_NVML).problem(), "");
}

}  // namespace
}  // namespace ridge
