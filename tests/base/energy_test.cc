// The energy meter on trees of files as the kernel makes them.
#include "ridge/base/machine/energy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

class Energy : public testing::Test {
 protected:
  std::string folder() const { return folder_.path().string(); }
  /// Writes a zone's counter, in microjoules.
  void count(const std::string& zone, const std::string& microjoules) {
    std::ofstream(folder_ / zone / "energy_uj") << microjoules << "\n";
  }
  void make(const std::string& zone, const std::string& name, const std::string& microjoules) {
    std::filesystem::create_directories(folder_ / zone);
    std::ofstream(folder_ / zone / "name") << name << "\n";
    std::ofstream(folder_ / zone / "max_energy_range_uj") << "262143328850\n";
    count(zone, microjoules);
  }

  test::TempFolder folder_;
};

TEST_F(Energy, PackagesAddUpAndTheirPartsDoNot) {
  make("intel-rapl:0", "package-0", "1000000");
  make("intel-rapl:0:0", "core", "600000");
  make("intel-rapl:0:1", "dram", "400000");
  make("intel-rapl:0/intel-rapl:0:0", "core", "600000");
  make("intel-rapl:1", "package-1", "5000000");
  make("intel-rapl:2", "psys", "9000000");
  make("intel-rapl-mmio:0", "package-0", "1000000");
  std::filesystem::create_directories(folder_ / "intel-rapl");  // the control type itself
  EnergyMeter meter(folder());
  EXPECT_EQ(meter.problem(), "");
  EXPECT_EQ(meter.take(), 0.0);
  count("intel-rapl:0", "3500000");
  count("intel-rapl:0:0", "3000000");
  count("intel-rapl:0:1", "3000000");
  count("intel-rapl:2", "90000000");
  count("intel-rapl-mmio:0", "3500000");
  count("intel-rapl:1", "5250000");
  EXPECT_DOUBLE_EQ(meter.take().value(), 2.75);
  EXPECT_EQ(meter.take(), 0.0);  // since the last call
}

TEST_F(Energy, ACounterMayBeginAnew) {
  make("intel-rapl:0", "package-0", "262143000000");
  EnergyMeter meter(folder());
  count("intel-rapl:0", "671150");
  EXPECT_DOUBLE_EQ(meter.take().value(), 1.0);  // 0.32885 to the end, 0.67115 from there
  count("intel-rapl:0", "1671150");
  EXPECT_DOUBLE_EQ(meter.take().value(), 1.0);
}

TEST_F(Energy, WhatCannotBeReadIsNotMeasured) {
  EXPECT_EQ(EnergyMeter(folder() + "/none").take(), std::nullopt);
  EXPECT_NE(EnergyMeter(folder()).problem().find("no energy counters"), std::string::npos);
  make("intel-rapl:0", "package-0", "17");
  make("intel-rapl:1", "package-1", "much");
  EXPECT_NE(EnergyMeter(folder()).problem().find("intel-rapl:1/energy_uj"), std::string::npos);
  EXPECT_EQ(EnergyMeter(folder()).take(), std::nullopt);
  if (geteuid() == 0) return;  // root reads everything
  count("intel-rapl:1", "5");
  EXPECT_EQ(EnergyMeter(folder()).problem(), "");
  chmod((folder_ / "intel-rapl:1" / "energy_uj").c_str(), 0);  // the mode since Linux 5.10
  EXPECT_NE(EnergyMeter(folder()).problem(), "");
}

// A reading that fails costs the stretch before and after it, and no more.
TEST_F(Energy, AFailureInBetweenIsOneGap) {
  make("intel-rapl:0", "package-0", "1000000");
  EnergyMeter meter(folder());
  count("intel-rapl:0", "");
  EXPECT_EQ(meter.take(), std::nullopt);
  count("intel-rapl:0", "4000000");
  EXPECT_EQ(meter.take(), std::nullopt);
  count("intel-rapl:0", "4500000");
  EXPECT_DOUBLE_EQ(meter.take().value(), 0.5);
  // Backwards, by a counter of which nobody knows the end.
  std::filesystem::remove(folder_ / "intel-rapl:0" / "max_energy_range_uj");
  EnergyMeter blind(folder());
  count("intel-rapl:0", "1");
  EXPECT_EQ(blind.take(), std::nullopt);
}

// Environment of NVML's stand-in: joules of its devices are 123456789.012, or as FAKE_NVML_JOULES.
class GpuEnergy : public Energy {
 protected:
  GpuEnergy() { joules("1000"); }
  ~GpuEnergy() override {
    ::unsetenv("FAKE_NVML_MILLIJOULES");
    ::unsetenv("FAKE_NVML_RESULTS");
    ::unsetenv("FAKE_NVML_LOST");
  }
  static void joules(const char* millijoules) { ::setenv("FAKE_NVML_MILLIJOULES", millijoules, 1); }
  EnergyMeter meter(const char* uuid = "GPU-fa4e0000-0") const {
    return {folder(), uuid, RIDGE_FAKE_NVML};
  }
};

TEST_F(GpuEnergy, AGpuIsAddedToTheProcessors) {
  make("intel-rapl:0", "package-0", "1000000");
  EnergyMeter both = meter();
  EXPECT_EQ(both.problem(), "");
  EXPECT_EQ(both.what(), "all processor packages and the GPU");
  joules("3500");
  count("intel-rapl:0", "1250000");
  EXPECT_DOUBLE_EQ(both.take().value(), 2.75);
  EXPECT_EQ(both.take(), 0.0);
  joules("3000");  // the driver was loaded again
  EXPECT_EQ(both.take(), std::nullopt);
  joules("4000");
  EXPECT_DOUBLE_EQ(both.take().value(), 1.0);
}

TEST_F(GpuEnergy, AGpuAloneIsSaidToBeAlone) {
  EnergyMeter alone = meter();
  EXPECT_EQ(alone.problem(), "");
  EXPECT_EQ(alone.what(), "the GPU");
  joules("1500");
  EXPECT_DOUBLE_EQ(alone.take().value(), 0.5);
  // A device that is not reported, or is lost, leaves a gap.
  ::setenv("FAKE_NVML_LOST", "0", 1);
  EXPECT_EQ(alone.take(), std::nullopt);
}

TEST_F(GpuEnergy, WithoutTheGpuTheProcessorsSayNothing) {
  make("intel-rapl:0", "package-0", "1000000");
  const auto expect_none = [&](EnergyMeter measured, const std::string& problem) {
    EXPECT_EQ(measured.problem(), problem);
    EXPECT_EQ(measured.what(), "");
    count("intel-rapl:0", "2000000");
    EXPECT_EQ(measured.take(), std::nullopt);
  };
  expect_none(meter("GPU-another"), "the driver does not tell what the GPU takes");
  ::setenv("FAKE_NVML_RESULTS", "energy=3", 1);
  expect_none(meter(), "the driver does not tell what the GPU takes");
  expect_none(EnergyMeter(folder(), "GPU-fa4e0000-0", "/nowhere/libnvidia-ml.so.1"),
              "the GPU cannot be weighed: no NVIDIA driver (/nowhere/libnvidia-ml.so.1)");
  // A program on the processors has no GPU.
  EXPECT_EQ(EnergyMeter(folder(), "", RIDGE_FAKE_NVML).what(), "all processor packages");
}

}  // namespace
}  // namespace ridge
