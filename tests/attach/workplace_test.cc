// Commands with {out} and {steps}, consent, and what a run may write where.
#include "ridge/attach/process/workplace.h"

#include <gtest/gtest.h>

#include "tests/attach/program_run.h"
#include "tests/support/errors.h"
#include "tests/support/temp_folder.h"

namespace ridge::attach {
namespace {

using test::text_of;
using test::user_error;
using Words = std::vector<std::string>;

Words filled(const Words& words) { return CommandTemplate(words).filled("/o", 12); }

TEST(CommandTemplate, PutsInTheFolderAndTheSteps) {
  const CommandTemplate command({"python", "t.py", "--out={out}/a", "{steps}", "{out}{out}"});
  EXPECT_TRUE(command.has_out());
  EXPECT_TRUE(command.has_steps());
  EXPECT_EQ(command.filled("/tmp/x y", -3),
            (Words{"python", "t.py", "--out=/tmp/x y/a", "-3", "/tmp/x y/tmp/x y"}));
  EXPECT_EQ(command.text(), "python t.py '--out={out}/a' '{steps}' '{out}{out}'");
  const CommandTemplate plain({"python", "train.py"});
  EXPECT_FALSE(plain.has_out() || plain.has_steps());
}

TEST(CommandTemplate, LeavesWhatElseIsInBraces) {
  const Words words = {"{}",
                       "{",
                       "}",
                       "{{",
                       "}}",
                       "",
                       R"({"out": {"steps": {}}})",
                       "f'{i}{loss:.3f}{epoch}'",
                       "${out}/${STEPS}",
                       "{out",
                       "out}",
                       "{ out }",
                       "{1}",
                       "{\xff}"};
  Words all = {"sh"};
  all.insert(all.end(), words.begin(), words.end());
  EXPECT_EQ(filled(all), all);
  EXPECT_FALSE(CommandTemplate(all).has_out() || CommandTemplate(all).has_steps());
}

TEST(CommandTemplate, DoubledBracesAreTheTextItself) {
  EXPECT_EQ(filled({"a", "{{out}}", "x{{steps}}y", "{{output}}", "{{{out}}}", "{{out}", "{out}}"}),
            (Words{"a", "{out}", "x{steps}y", "{output}", "{{out}}", "{/o", "/o}"}));
  EXPECT_FALSE(CommandTemplate({"{{out}}"}).has_out());
}

TEST(CommandTemplate, RefusesWhatLooksLikeAName) {
  for (const auto& [text, meant] : {std::pair{"{output}", "{out}"},
                                    {"{OUT}", "{out}"},
                                    {"--a={out_dir}/b", "{out}"},
                                    {"{ouy}", "{out}"},
                                    {"{oput}", "{out}"},
                                    {"{step}", "{steps}"},
                                    {"{max_steps}", "{steps}"},
                                    {"{setps}", "{steps}"}}) {
    const std::string said = user_error([&] { CommandTemplate({"python", text}); });
    EXPECT_NE(said.find("stands for nothing"), std::string::npos) << text << ": " << said;
    EXPECT_NE(said.find("write '" + std::string(meant) + "'"), std::string::npos) << said;
  }
  EXPECT_NE(user_error([] { CommandTemplate({"a", "{output}"}); }).find("'{{output}}'"),
            std::string::npos);
  EXPECT_NE(user_error([] { CommandTemplate({}); }).find("no command"), std::string::npos);
  EXPECT_NE(user_error([] { CommandTemplate({""}); }).find("no command"), std::string::npos);
}

TEST(Consent, IsAskedForWithTheThreeWaysOut) {
  const CommandTemplate plain({"python", "my train.py"}), named({"python", "{out}"});
  EXPECT_EQ(consent_to(plain, true, false), Consent::kSandbox);
  EXPECT_EQ(consent_to(plain, false, true), Consent::kRerun);
  EXPECT_EQ(consent_to(named, false, false), Consent::kOut);
  EXPECT_EQ(consent_to(named, false, true), Consent::kOut);
  EXPECT_EQ(consent_to(named, true, false), Consent::kSandbox);
  const std::string said = user_error([&] { consent_to(plain, false, false); });
  for (const char* part : {"--sandbox", "--rerun", "{out}", "python 'my train.py'"})
    EXPECT_NE(said.find(part), std::string::npos) << said;
  EXPECT_NE(user_error([&] { consent_to(plain, true, true); }).find("one of them"),
            std::string::npos);
}

ProgramRequest placed(const Workplace& place) {
  ProgramRequest request;
  request.supervisor = RIDGE_PROGRAM;
  place.place(request, 7);
  return request;
}

TEST(Workplace, GivesEachRunAFolderOfItsOwn) {
  const CommandTemplate command({"sh",
                                 "-c",
                                 "echo said; echo cried >&2; cat; ls \"$1\"; echo $2 > \"$1/file\"",
                                 "sh",
                                 "{out}",
                                 "{steps}"});
  std::string first_out;
  {
    const Workplace first(command, Consent::kOut), second(command, Consent::kOut);
    const ProgramRequest one = placed(first), two = placed(second);
    EXPECT_NE(one.command[4], two.command[4]);
    for (const auto& [place, request] : {std::pair{&first, one}, {&second, two}}) {
      EXPECT_EQ(test::run(request).exit_code, 0);
      EXPECT_EQ(text_of(place->output_path()), "said\ncried\n");
      EXPECT_EQ(text_of(request.command[4] + "/file"), "7\n");
    }
    first_out = one.command[4];
  }
  EXPECT_FALSE(std::filesystem::exists(std::filesystem::path(first_out).parent_path()));
}

TEST(Workplace, WithRerunTheCommandRunsAsItIs) {
  const test::TempFolder folder;
  const Workplace place(
      CommandTemplate({"sh", "-c", "pwd; echo more >> " + (folder / "log").string()}),
      Consent::kRerun);
  for (int i = 0; i < 2; ++i) EXPECT_EQ(test::run(placed(place)).exit_code, 0);
  EXPECT_EQ(text_of(folder / "log"), "more\nmore\n");
  EXPECT_EQ(text_of(place.output_path()), std::filesystem::current_path().string() + "\n");
  EXPECT_NE(place.how().find("--rerun"), std::string::npos);
}

}  // namespace
}  // namespace ridge::attach
