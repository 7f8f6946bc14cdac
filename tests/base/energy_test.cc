// The energy meter on trees of files as the kernel makes them.
#include "ridge/base/energy.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

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
  chmod((folder_ / "intel-rapl:1" / "energy_uj").c_str(), 0);  // as kernels since 5.10 have it
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

}  // namespace
}  // namespace ridge
