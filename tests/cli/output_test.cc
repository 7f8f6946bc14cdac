#include "ridge/cli/common/output.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

TEST(Output, NumbersForPeople) {
  EXPECT_EQ(scaled(7), "7");
  EXPECT_EQ(scaled(999.4), "999");
  EXPECT_EQ(scaled(12.345), "12.3");
  EXPECT_EQ(scaled(999.6), "1.00 k");
  EXPECT_EQ(scaled(12345), "12.3 k");
  EXPECT_EQ(scaled(1.25e9), "1.25 G");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1024), "1.0 KiB");
  EXPECT_EQ(bytes_text(1048575), "1.0 MiB");
  EXPECT_EQ(bytes_text(160 << 20), "160.0 MiB");
  EXPECT_EQ(bytes_text(INT64_MAX), "8.0 EiB");
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(1234567890), "1,234,567,890");
}

TEST(Output, TimesOfRuns) {
  EXPECT_EQ(run_time_text(1.25e-5), "12.5 us");
  EXPECT_EQ(run_time_text(8.3e-4), "830 us");
  EXPECT_EQ(run_time_text(0.0142), "14.2 ms");
}

TEST(Output, Durations) {
  EXPECT_EQ(duration_text(0.04), "0.0 s");
  EXPECT_EQ(duration_text(9.94), "9.9 s");
  EXPECT_EQ(duration_text(9.96), "10 s");
  EXPECT_EQ(duration_text(59.4), "59 s");
  EXPECT_EQ(duration_text(59.6), "1:00");
  EXPECT_EQ(duration_text(151), "2:31");
  EXPECT_EQ(duration_text(3599.7), "1:00:00");
  EXPECT_EQ(duration_text(90061), "25:01:01");
  EXPECT_EQ(duration_text(std::nan("")), "0.0 s");
  EXPECT_EQ(duration_text(INFINITY), "1000000:00:00");
}

TEST(Output, PlacesAreCheckedBeforeTheWork) {
  const test::TempFolder folder;
  const auto error = [](const std::string& path) {
    return test::user_error([&] { check_place(path); });
  };
  const std::string base = folder.path().string();
  for (const std::string& fine :
       {std::string(), base + "/new", base + "/" + std::string(255, 'n'), std::string("/dev/null")})
    EXPECT_EQ(error(fine), "no error") << fine;
  EXPECT_EQ(error(base), "cannot write '" + base + "': it is a folder; name a file in it");
  EXPECT_EQ(error(base + "/none/new"),
            "cannot write '" + base +
                "/none/new': No such file or directory; name a file in a folder that you may "
                "write to");
  const std::string long_name = base + "/" + std::string(256, 'n');
  EXPECT_EQ(error(long_name),
            "cannot write '" + long_name + "': File name too long; give a shorter name");
  EXPECT_EQ(error("/dev/full"),
            "cannot write '/dev/full': No space left on device; name another file");
  EXPECT_TRUE(folder.names().empty());
}

}  // namespace
}  // namespace ridge
