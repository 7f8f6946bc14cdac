// The messages against bytes laid out by hand after libkineto's structures.
#include "ridge/attach/kineto/kineto_messages.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "tests/attach/kineto_stand_in.h"

namespace ridge::attach {
namespace {

using test::kineto_datagram;
using test::packed;

std::optional<KinetoMessage> parse(const std::string& datagram) {
  return parse_kineto_message(std::as_bytes(std::span(datagram)));
}

TEST(KinetoMessages, ARegistrationIsRead) {
  const auto message = parse(kineto_datagram("ctxt", packed(int32_t{3}, int32_t{41}, int64_t{7})));
  ASSERT_TRUE(message);
  EXPECT_EQ(message->kind, KinetoMessage::Kind::kRegister);
  EXPECT_EQ(message->pids, std::vector<int32_t>{41});
  EXPECT_EQ(message->job, 7);
}

TEST(KinetoMessages, APollIsRead) {
  const auto poll = [](int32_t kinds) {
    return parse(
        kineto_datagram("req", packed(kinds, int32_t{2}, int64_t{-5}, int32_t{41}, int32_t{40})));
  };
  ASSERT_TRUE(poll(2));
  EXPECT_EQ(poll(2)->kind, KinetoMessage::Kind::kPoll);
  EXPECT_EQ(poll(2)->pids, (std::vector<int32_t>{41, 40}));
  EXPECT_EQ(poll(2)->job, -5);
  EXPECT_TRUE(poll(2)->is_free);
  EXPECT_TRUE(poll(3)->is_free);
  EXPECT_FALSE(poll(1)->is_free);
}

TEST(KinetoMessages, WhatIsBrokenIsNone) {
  const std::string payload = packed(int32_t{2}, int32_t{1}, int64_t{0}, int32_t{41});
  const std::string good = kineto_datagram("req", payload);
  ASSERT_TRUE(parse(good));
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse(good.substr(0, size)));
  EXPECT_FALSE(parse(good + "x"));
  EXPECT_FALSE(parse(kineto_datagram("data", payload)));
  EXPECT_FALSE(parse(kineto_datagram(std::string(32, 'r'), payload)));
  for (const int32_t count : {0, -1, 2, 1 << 30, INT32_MAX, INT32_MIN})
    EXPECT_FALSE(parse(kineto_datagram("req", packed(2, count, int64_t{0}, int32_t{41}))));
  EXPECT_FALSE(parse(kineto_datagram("ctxt", packed(int32_t{0}, int32_t{41}))));
  EXPECT_FALSE(parse(kineto_datagram("req", std::string(kLongestKinetoMessage, '\1'))));
}

TEST(KinetoMessages, NoiseIsNoneOrHoldsTogether) {
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string noise =
        kineto_datagram(i % 2 == 0 ? "req" : "ctxt", packed(int32_t{2}, int32_t{1}));
    noise.resize(random() % 90, '\0');
    for (int changes = static_cast<int>(random() % 4); changes > 0 && !noise.empty(); --changes)
      noise[random() % noise.size()] = static_cast<char>(random());
    if (noise.size() >= 40 && i % 3 == 0) noise[0] = static_cast<char>(noise.size() - 40);
    const auto message = parse(noise);
    const size_t held = message ? message->pids.size() * 4 + 40 : 0;
    EXPECT_LE(held, noise.size());
  }
}

TEST(KinetoMessages, AnswersHaveTheLayoutThatLibkinetoReads) {
  EXPECT_EQ(kineto_count_answer(5), kineto_datagram("ctxt", packed(int32_t{5})));
  EXPECT_EQ(kineto_config_answer(""), kineto_datagram("req", ""));
  EXPECT_EQ(kineto_config_answer("A=1\n"), kineto_datagram("req", "A=1\n"));
}

TEST(KinetoMessages, AConfigurationIsBySecondsOrByStepsToo) {
  KinetoRecording recording{.log_file = "/tmp/x/trace.json", .duration_ms = 1500};
  EXPECT_EQ(kineto_config(recording),
            "ACTIVITIES_LOG_FILE=/tmp/x/trace.json\nACTIVITIES_WARMUP_PERIOD_SECS=2\n"
            "ACTIVITIES_DURATION_MSECS=1500\nPROFILE_REPORT_INPUT_SHAPES=true\n");
  recording.iterations = 12;
  EXPECT_NE(kineto_config(recording).find("ACTIVITIES_ITERATIONS=12\n"), std::string::npos);
  EXPECT_NE(kineto_config(recording).find("PROFILE_START_ITERATION=0\n"), std::string::npos);
}

}  // namespace
}  // namespace ridge::attach
