#include "ridge/doctor/trace/name_words.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>

#include "tests/doctor/made_trace.h"

namespace ridge::doctor {
namespace {

TEST(NameWords, CaseOfTheTextDoesNotMatter) {
  EXPECT_TRUE(holds("cudaMemcpyAsync", "memcpy"));
  EXPECT_TRUE(holds("MEMCPY", "memcpy"));
  EXPECT_TRUE(holds("a memcp then MemCpy", "memcpy"));
  EXPECT_TRUE(holds("x(1): i/o", "i/o"));
  EXPECT_TRUE(holds("", ""));
  EXPECT_TRUE(holds("a", ""));
  EXPECT_FALSE(holds("", "a"));
  EXPECT_FALSE(holds("memcp", "memcpy"));
  // Not letters, though they differ by the same bit as the cases of letters do.
  EXPECT_FALSE(holds("[{", "{["));
  EXPECT_FALSE(holds("@", "`"));
  EXPECT_FALSE(holds("\xc1", "\xe1"));
}

// Texts of few letters, so that words begin at many places and end at few.
std::string some_text(std::mt19937& random, size_t longest, std::string_view letters) {
  std::string text(random() % (longest + 1), ' ');
  for (char& c : text) c = letters[random() % letters.size()];
  return text;
}

TEST(NameWords, AreFoundWhereASearchOfTheLoweredTextFindsThem) {
  std::mt19937 random(4);
  int found = 0;
  for (int trial = 0; trial < 20'000; ++trial) {
    const std::string text = some_text(random, 40, "aAbB_1");
    const std::string part = some_text(random, 5, "ab_1");
    std::string lower = text;
    std::replace(lower.begin(), lower.end(), 'A', 'a');
    std::replace(lower.begin(), lower.end(), 'B', 'b');
    const bool expected = lower.find(part) != std::string::npos;
    ASSERT_EQ(holds(text, part), expected) << text << " " << part;
    found += expected;
  }
  EXPECT_GT(found, 5'000);
  EXPECT_LT(found, 15'000);
}

TEST(NameWords, AnyOfSeveralWordsWillDo) {
  constexpr std::string_view kWords[] = {"gemm", "conv2d"};
  EXPECT_TRUE(holds_any("a Conv2d", kWords));
  EXPECT_FALSE(holds_any("a conv3d", kWords));
  EXPECT_FALSE(holds_any("a conv3d", {}));
}

TEST(NameWords, EachNameIsAskedOfOnceAndOnlyIfARowIs) {
  MadeTrace made;
  for (int i = 0; i < 30; ++i) {
    made.op(i % 3 == 0 ? "aten::mm" : "aten::add", {10.0 * i, 5});
    made.range("never asked of", {10.0 * i, 5});
  }
  const Trace trace = made.done();
  std::map<std::string, int> asked;
  ByName length(trace, [&asked](std::string_view name) {
    ++asked[std::string(name)];
    return name.size();
  });
  for (size_t row = 0; row < trace.size(); ++row)
    if (trace.kind[row] == EventKind::kOperator) {
      EXPECT_EQ(length(row), trace.name_text(row).size());
    }
  EXPECT_EQ(asked, (std::map<std::string, int>{{"aten::mm", 1}, {"aten::add", 1}}));
}

}  // namespace
}  // namespace ridge::doctor
