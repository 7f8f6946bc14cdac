#include "ridge/cli/common/output.h"

#include <gtest/gtest.h>

#include <cmath>

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

}  // namespace
}  // namespace ridge
