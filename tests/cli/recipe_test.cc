// `--recipe` as a user gives it: what runs, what is reported, what the run keeps.
#include "ridge/config/recipe.h"

#include <gtest/gtest.h>

#include <regex>

#include "tests/cli/ridge_process.h"
#include "tests/support/temp_folder.h"

namespace ridge {
namespace {

using test::Ended;
using test::TempFolder;
using test::text_of;

constexpr const char* kRun =
    "threads = 2\n[model]\nhidden = [8]\n[data]\nkind = 'random'\nshape = [4]\nsamples = 64\n"
    "[train]\nsteps = 2\nbatch = 8\nout = 'out'\n";

class RecipeOption : public ::testing::Test {
 protected:
  RecipeOption() { write("run.toml", kRun); }

  void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  Ended ridge(std::vector<std::string> words, const std::string& shell = {}) {
    words.insert(words.end(), {"--recipe", "r.toml"});
    return test::ridge(folder_.path(), words, shell);
  }

  TempFolder folder_;
};

TEST_F(RecipeOption, LiesBetweenFileAndFlagsAndIsKeptWithTheRun) {
  write("r.toml", "threads = 1\ncpu.isa = 'avx2'\n[train]\nbatch = 16\nmicro = 2\n");
  const Ended run =
      ridge({"train", "run.toml", "--set", "train.micro=4"}, "export RIDGE_CPU_ISA=auto;");
  ASSERT_EQ(run.code, 0) << run.err;
  const std::string kept = text_of(folder_ / "out" / "config.toml");
  for (const char* line : {"\nbatch = 16 .*# recipe r.toml:4:9\n",
                           "\nmicro = 4 .*# flag --set\n",
                           "\nsteps = 2 .*# file run.toml:9:9\n",
                           "threads = 1 .*# recipe r.toml:1:11\n",
                           "cpu.isa = \"auto\" .*# environment RIDGE_CPU_ISA\n"})
    EXPECT_TRUE(std::regex_search(kept, std::regex(line))) << line << "\n" << kept;
  EXPECT_NE(run.err.find("note: r.toml:5:9: train.micro = 2 gives way to flag --set\n"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("note: r.toml:2:11: cpu.isa = \"avx2\" gives way to environment "
                         "RIDGE_CPU_ISA\n"),
            std::string::npos)
      << run.err;
  EXPECT_EQ(run.err.find("proven"), std::string::npos) << run.err;
}

TEST_F(RecipeOption, SaysWhatItsClaimDoesNotCover) {
  Settings scratch;
  Recipe recipe;
  recipe.set("train.micro", "2");
  recipe.proven.config = config_hash(load_config(kRun, "run.toml", {}, scratch).config);
  write("r.toml", to_toml(recipe));
  EXPECT_EQ(ridge({"inspect", "run.toml"}).err, "");
  EXPECT_EQ(ridge({"inspect", "run.toml", "--set", "train.batch=32"}).err,
            "note: r.toml: proven on another configuration\n");
  recipe.proven.machine = "an abacus";
  write("r.toml", to_toml(recipe));
  EXPECT_EQ(ridge({"inspect", "run.toml"}).err,
            "note: r.toml: proven on another machine, or with other threads: an abacus\n");
}

TEST_F(RecipeOption, BadOnesEndWithCode2AndTheirPlace) {
  write("r.toml", "[train]\nmicor = 2\n");
  for (const char* verb : {"train", "eval", "generate", "inspect"}) {
    const Ended run = ridge({verb, "run.toml"});
    EXPECT_EQ(run.code, 2) << verb;
    EXPECT_EQ(run.err,
              "error: r.toml:2:1: unknown key 'train.micor'; did you mean 'train.micro'?\n");
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace ridge
