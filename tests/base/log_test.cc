#include "ridge/base/log.h"

#include <gtest/gtest.h>

#include "ridge/base/error.h"

namespace ridge {
namespace {

class LogTest : public ::testing::Test {
 protected:
  ~LogTest() override { set_log_level(before_); }

  // What `action` writes to stderr, and nothing may go to stdout.
  template <typename Action>
  std::string written(Action action) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    action();
    EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
    return ::testing::internal::GetCapturedStderr();
  }

 private:
  LogLevel before_ = log_level();
};

TEST_F(LogTest, WritesOneLineToStderr) {
  set_log_level(LogLevel::kInfo);
  const std::string text = written([] { log_warning("{} of {} events dropped", 3, 10); });
  EXPECT_NE(text.find("warning"), std::string::npos) << text;
  EXPECT_NE(text.find(" 3 of 10 events dropped\n"), std::string::npos) << text;
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
}

TEST_F(LogTest, LevelsFilter) {
  set_log_level(LogLevel::kWarning);
  const std::string text = written([] {
    log_debug("first");
    log_info("second");
    log_warning("third");
    log_error("fourth");
  });
  EXPECT_EQ(text.find("first"), std::string::npos);
  EXPECT_EQ(text.find("second"), std::string::npos);
  EXPECT_NE(text.find("third"), std::string::npos);
  EXPECT_NE(text.find("fourth"), std::string::npos);
  set_log_level(LogLevel::kOff);
  EXPECT_EQ(written([] { log_error("fifth"); }), "");
  EXPECT_EQ(written([] { log_message(LogLevel::kOff, "sixth"); }), "");
}

TEST_F(LogTest, TextIsNeitherAFormatNorATerminalCommand) {
  set_log_level(LogLevel::kInfo);
  const std::string text = written([] { log_message(LogLevel::kInfo, "{} %v {:d} \x1b[31m\nx"); });
  EXPECT_NE(text.find("{} %v {:d} ?[31m?x\n"), std::string::npos) << text;
}

TEST_F(LogTest, NamesParseBack) {
  for (LogLevel level : {LogLevel::kTrace,
                         LogLevel::kDebug,
                         LogLevel::kInfo,
                         LogLevel::kWarning,
                         LogLevel::kError,
                         LogLevel::kOff})
    EXPECT_EQ(parse_log_level(name_of(level)), level);
  EXPECT_THROW(parse_log_level("warnings"), UserError);
}

}  // namespace
}  // namespace ridge
