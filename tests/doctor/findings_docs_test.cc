// docs/findings.md says of the doctor's rules what the table of rules says.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <regex>
#include <string>
#include <vector>

#include "ridge/doctor/rules/rules.h"

namespace ridge::doctor {
namespace {

std::vector<std::string> lines_of_docs() {
  std::ifstream file("docs/findings.md");
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(FindingsDocs, HaveOneSectionForEachRuleInTheirOrder) {
  std::vector<std::string> expected, found;
  for (const Rule& rule : kRules)
    expected.push_back(std::string(rule.id) + " " + std::string(rule.title));
  for (const std::string& line : lines_of_docs())
    if (std::regex_search(line, std::regex("^#+ +R[0-9]")))
      found.push_back(line.substr(line.find('R')));
  EXPECT_EQ(found, expected);
}

TEST(FindingsDocs, SpeakOfNoRuleThatIsNotThere) {
  const std::regex id("\\bR[0-9]{2}\\b");
  int mentions = 0;
  for (const std::string& line : lines_of_docs())
    for (std::sregex_iterator each(line.begin(), line.end(), id), end; each != end; ++each) {
      ++mentions;
      const std::string name = each->str();
      EXPECT_TRUE(std::any_of(std::begin(kRules), std::end(kRules), [&](const Rule& rule) {
        return rule.id == name;
      })) << line;
    }
  EXPECT_GT(mentions, 20);
}

// Each section names the fix, and the class of what it does to results.
TEST(FindingsDocs, SectionsSayWhatToDo) {
  std::vector<std::string> sections;
  for (const std::string& line : lines_of_docs()) {
    if (line.starts_with("## ")) sections.emplace_back();
    if (!sections.empty()) sections.back() += line + "\n";
  }
  int checked = 0;
  for (const std::string& text : sections) {
    if (!text.starts_with("## R") || text.starts_with("## R00")) continue;  // R00 changes nothing
    ++checked;
    for (const char* part : {"*Fix*", "Class "})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in " << text;
  }
  EXPECT_EQ(checked, static_cast<int>(std::size(kRules)) - 1);
}

}  // namespace
}  // namespace ridge::doctor
