#include "ridge/base/settings.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "ridge/base/error.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

using test::user_error;

constexpr SettingRow kRows[] = {
    {"count", SettingType::kInt, "3", "0..10", "RIDGE_TEST_COUNT", "a count"},
    {"free.count", SettingType::kInt, "-1", "", "RIDGE_TEST_FREE", "any integer"},
    {"share", SettingType::kDouble, "0.5", "0..1", "RIDGE_TEST_SHARE", "a share"},
    {"quick", SettingType::kBool, "false", "", "RIDGE_TEST_QUICK", "a switch"},
    {"colour", SettingType::kString, "blue", "blue|green", "RIDGE_TEST_COLOUR", "a choice"},
    {"title", SettingType::kString, "", "", "RIDGE_TEST_TITLE", "any text"},
};

TEST(Settings, DefaultsAndTypes) {
  const Settings s(kRows);
  EXPECT_EQ(s.get_int("count"), 3);
  EXPECT_EQ(s.get_int("free.count"), -1);
  EXPECT_EQ(s.get_double("share"), 0.5);
  EXPECT_FALSE(s.get_bool("quick"));
  EXPECT_EQ(s.get_string("colour"), "blue");
  EXPECT_EQ(s.get_string("title"), "");
  EXPECT_EQ(s.origin("count").source, Source::kDefault);
  EXPECT_THROW(s.get_int("share"), InternalError);
  EXPECT_THROW(s.get_string("nothing"), InternalError);
}

TEST(Settings, PrecedenceDoesNotDependOnTheOrderOfCalls) {
  struct Set {
    const char* value;
    Source source;
  };
  const std::vector<Set> all = {
      {"4", Source::kFile}, {"5", Source::kEnvironment}, {"6", Source::kFlag}};
  for (int order = 0; order < 6; ++order) {
    Settings s(kRows);
    const size_t first = static_cast<size_t>(order / 2);
    const size_t second = (first + 1 + static_cast<size_t>(order % 2)) % 3;
    for (size_t i : {first, second, 3 - first - second})
      s.set("count", all[i].value, all[i].source);
    EXPECT_EQ(s.get_int("count"), 6) << order;
  }
  Settings s(kRows);
  s.set("count", "4", Source::kFile, "ridge.toml:3");
  EXPECT_EQ(s.get_int("count"), 4);
  s.set("count", "5", Source::kEnvironment, "RIDGE_TEST_COUNT");
  EXPECT_EQ(s.get_int("count"), 5);
  s.set("count", "9", Source::kFile);
  EXPECT_EQ(s.get_int("count"), 5);
  const Settings::Origin origin = s.origin("count");
  EXPECT_EQ(origin.value, "5");
  EXPECT_EQ(origin.source, Source::kEnvironment);
  EXPECT_EQ(origin.where, "RIDGE_TEST_COUNT");
  EXPECT_EQ(name_of(origin.source), "environment");
}

TEST(Settings, RefusesWhatTheRowDoesNotAllow) {
  Settings s(kRows);
  const std::pair<const char*, std::vector<const char*>> bad[] = {
      {"count", {"", "abc", "11", "-1", "3.5", "3 ", " 3", "0x3", "99999999999999999999"}},
      {"share", {"", "1.1", "-0.1", "nan", "inf", "half", "0.5x"}},
      {"quick", {"", "maybe", "TRUE", "2"}},
      {"colour", {"", "red", "blue|green", "Blue"}}};
  for (const auto& [name, values] : bad)
    for (const char* value : values)
      EXPECT_THROW(s.set(name, value, Source::kFlag), UserError) << name << "=" << value;
  EXPECT_EQ(s.get_int("count"), 3);  // nothing of it stuck
  EXPECT_EQ(s.origin("colour").source, Source::kDefault);
  for (const char* value : {"0", "10"}) s.set("count", value, Source::kFlag);
  for (const char* value : {"0", "1", "1e-3"}) s.set("share", value, Source::kFlag);
  for (const char* value : {"true", "1", "yes", "on"}) {
    s.set("quick", value, Source::kFlag);
    EXPECT_TRUE(s.get_bool("quick"));
  }
  s.set("title", "any | text, even ''", Source::kFlag);
  EXPECT_EQ(s.get_string("title"), "any | text, even ''");
}

TEST(Settings, MessagesSayWhatWhereWhyAndFix) {
  Settings s(kRows);
  EXPECT_EQ(user_error([&] { s.set("count", "many", Source::kEnvironment, "RIDGE_TEST_COUNT"); }),
            "setting 'count' from environment RIDGE_TEST_COUNT: got 'many', expected an integer "
            "from 0 to 10; leave it out for the default '3'");
  EXPECT_EQ(user_error([&] { s.set("colour", "gren", Source::kFile, "ridge.toml:3"); }),
            "setting 'colour' from file ridge.toml:3: got 'gren', expected one of blue, green; "
            "did you mean 'green'?");
  EXPECT_EQ(user_error([&] { s.set("coutn", "3", Source::kFlag, "--set"); }),
            "unknown setting 'coutn' from flag --set; did you mean 'count'?");
  const std::string huge =
      user_error([&] { s.set("count", std::string(1 << 20, '7'), Source::kFile); });
  EXPECT_LT(huge.size(), 300u);
}

TEST(Settings, ReadsTheEnvironment) {
  setenv("RIDGE_TEST_COUNT", "7", 1);
  setenv("RIDGE_TEST_SHARE", "", 1);  // empty is as if it were not there
  Settings s(kRows);
  s.read_environment();
  EXPECT_EQ(s.get_int("count"), 7);
  EXPECT_EQ(s.origin("count").where, "RIDGE_TEST_COUNT");
  EXPECT_EQ(s.get_double("share"), 0.5);
  setenv("RIDGE_TEST_COUNT", "seven", 1);
  EXPECT_THROW(s.read_environment(), UserError);
  unsetenv("RIDGE_TEST_COUNT");
  unsetenv("RIDGE_TEST_SHARE");
}

// The list of settings is an interface: a new one belongs into the documentation too.
TEST(SettingsTable, IsFrozen) {
  std::string names;
  std::set<std::string_view> seen;
  for (const SettingRow& row : setting_rows()) {
    names += std::string(row.name) + " ";
    EXPECT_TRUE(seen.insert(row.name).second) << row.name;
    EXPECT_TRUE(seen.insert(row.environment).second) << row.environment;
    EXPECT_TRUE(row.environment.starts_with("RIDGE_"));
    EXPECT_FALSE(row.help.empty());
    EXPECT_EQ(row.help.find_first_of("|\n"), std::string_view::npos) << "breaks the Markdown table";
  }
  EXPECT_EQ(names, "threads cpu.isa cpu.jit cpu.pin tune ");
}

TEST(SettingsTable, MarkdownHasARowForEach) {
  const std::string text = settings_markdown();
  EXPECT_EQ(static_cast<size_t>(std::count(text.begin(), text.end(), '\n')),
            setting_rows().size() + 2);
  EXPECT_NE(
      text.find("| `cpu.isa` | string | `auto` | auto, avx2, avx512, amx | `RIDGE_CPU_ISA` |"),
      std::string::npos)
      << text;
}

TEST(SettingsTable, ProcessSettingsAreThere) {
  EXPECT_GE(settings().get_int("threads"), 0);
  EXPECT_EQ(&settings(), &settings());
}

}  // namespace
}  // namespace ridge
