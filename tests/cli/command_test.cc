// The command line as a whole: verbs, options, exit codes.
#include "ridge/cli/command.h"

#include <gtest/gtest.h>

#include <map>
#include <regex>
#include <sstream>

#include "tests/cli/run_words.h"

namespace ridge {
namespace {

using test::Outcome;
using test::run;

// First words of the indented lines below `heading` in a help text.
std::vector<std::string> listed(const std::string& help, const std::string& heading) {
  std::vector<std::string> names;
  std::istringstream text(help);
  bool inside = false;
  for (std::string line; std::getline(text, line);) {
    if (!line.starts_with("  ")) inside = line.starts_with(heading);
    std::smatch match;
    if (inside && std::regex_search(line, match, std::regex("^  (\\S+)")))
      names.push_back(match[1]);
  }
  return names;
}

// Scripts of users rely on these. A change here is a change for them: say so in the release.
const std::map<std::string, std::vector<std::string>> kOptions = {
    {"inspect", {"-h,--help", "--json", "--nodes"}},
    {"calibrate", {"-h,--help", "--device", "--threads", "--fresh", "--json"}},
};

TEST(Command, OptionsAreFrozen) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.err, "");
  EXPECT_EQ(listed(help.out, "Options"), (std::vector<std::string>{"-h,--help", "--version"}));
  const std::vector<std::string> verbs = listed(help.out, "Subcommands");
  EXPECT_EQ(verbs.size(), kOptions.size());
  for (const std::string& verb : verbs) {
    const Outcome verb_help = run({verb, "--help"});
    EXPECT_EQ(verb_help.code, 0) << verb;
    ASSERT_TRUE(kOptions.contains(verb)) << verb;
    EXPECT_EQ(listed(verb_help.out, "Options"), kOptions.at(verb)) << verb;
  }
}

TEST(Command, VersionIsOneLine) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(std::regex_match(version.out, std::regex("ridge \\d+\\.\\d+\\.\\d+\n")));
}

TEST(Command, UnknownNamesGetTheNearest) {
  EXPECT_EQ(run({"calibrat"}).err, "error: unknown verb 'calibrat'; did you mean 'calibrate'?\n");
  EXPECT_EQ(run({"calibrate", "--fesh"}).err,
            "error: unknown option '--fesh' of 'calibrate'; did you mean '--fresh'?\n");
  EXPECT_EQ(run({"calibrate", "--qqqqqqqq"}).err,
            "error: unknown option '--qqqqqqqq' of 'calibrate'; 'ridge calibrate --help' lists "
            "them\n");
  EXPECT_EQ(run({"calibrate", "--fesh"}).code, 2);
}

}  // namespace
}  // namespace ridge
