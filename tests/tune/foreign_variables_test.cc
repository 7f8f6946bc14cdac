// Which environment variables a recipe may set: the table of the documentation, what an adversary
// writes, and what the loop writes itself. Runs in the root of the repository.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <sstream>

#include "ridge/io/file.h"
#include "ridge/tune/pytorch/recipe.h"
#include "ridge/tune/pytorch/technique.h"
#include "ridge/tune/pytorch/variables.h"
#include "tests/support/errors.h"

namespace ridge {
namespace {

using Words = std::set<std::string>;

Words quoted_in(const std::string& cell) {
  Words words;
  for (size_t at = cell.find('`'); at != std::string::npos;) {
    const size_t end = cell.find('`', at + 1);
    words.insert(cell.substr(at + 1, end - at - 1));
    at = cell.find('`', end + 1);
  }
  return words;
}

// Variable: all names in its row.
std::map<std::string, Words> documented() {
  std::map<std::string, Words> rows;
  std::istringstream lines(read_file("docs/recipes_pytorch.md"));
  bool is_ours = false;
  for (std::string line; std::getline(lines, line);) {
    if (line == "| trusted | values |") is_ours = true;
    if (!is_ours || !line.starts_with("| `")) continue;
    const size_t second = line.find('|', 1);
    rows[*quoted_in(line.substr(0, second)).begin()] = quoted_in(line.substr(second));
  }
  return rows;
}

TEST(TrustedVariables, TheDocumentationHasTheSameTable) {
  std::map<std::string, Words> expected;
  for (const TrustedVariable& variable : trusted_variables()) {
    Words& words = expected[std::string(variable.name)];
    for (const auto& part : {variable.settings, variable.folders})
      words.insert(part.begin(), part.end());
  }
  EXPECT_EQ(documented(), expected);
}

std::string recipe_with(const std::string& name, const std::string& value) {
  return "[environment]\n" + name + " = \"" + value + "\"\n";
}

TEST(TrustedVariables, WhatCouldRunOtherCodeIsRefusedWithItsPlace) {
  const std::string good = "/usr/lib/libjemalloc.so.2";
  const std::string keep = "glibc.malloc.mmap_max=0";
  const std::pair<std::string, std::string> adversaries[] = {
      {"LD_PRELOAD", "evil.so"},
      {"LD_PRELOAD", ""},
      {"LD_PRELOAD", "libjemalloc.so.2"},
      {"LD_PRELOAD", "./libjemalloc.so.2"},
      {"LD_PRELOAD", "usr/lib/libjemalloc.so.2"},
      {"LD_PRELOAD", "/libjemalloc.so.2"},
      {"LD_PRELOAD", "/tmp/libjemalloc.so.2"},
      {"LD_PRELOAD", "/usr/lib/../../tmp/libjemalloc.so.2"},
      {"LD_PRELOAD", "/usr/lib/./libjemalloc.so.2"},
      {"LD_PRELOAD", "/usr/lib//libjemalloc.so.2"},
      {"LD_PRELOAD", "/usr/lib/evil/libjemalloc.so.2"},
      {"LD_PRELOAD", "/usr/lib/libc.so.6"},
      {"LD_PRELOAD", "/usr/lib/"},
      {"LD_PRELOAD", "/USR/LIB/libjemalloc.so.2"},
      {"LD_PRELOAD", "evil.so:" + good},
      {"LD_PRELOAD", "/tmp/evil.so " + good},
      {"LD_PRELOAD", good + ":/tmp/evil.so"},
      {"LD_PRELOAD", good + " /tmp/evil.so"},
      {"LD_PRELOAD", good + ":" + good},
      {"LD_PRELOAD", good + ":"},
      {"LD_PRELOAD", " " + good},
      {"LD_PRELOAD", good + "\\n"},
      {"ld_preload", good},
      {"Ld_Preload", good},
      {"LD_LIBRARY_PATH", "/tmp"},
      {"LD_AUDIT", "/tmp/evil.so"},
      {"LD_AUDIT", good},
      {"PYTHONPATH", "/tmp"},
      {"PYTHONSTARTUP", "/tmp/evil.py"},
      {"PYTHONHOME", "/tmp"},
      {"PATH", "/tmp"},
      {"BASH_ENV", "/tmp/evil.sh"},
      {"OMP_NUM_THREADS", "2"},
      {"GLIBC_TUNABLES", ""},
      {"GLIBC_TUNABLES", ":"},
      {"GLIBC_TUNABLES", keep + ":"},
      {"GLIBC_TUNABLES", ":" + keep},
      {"GLIBC_TUNABLES", keep + ":" + keep},
      {"GLIBC_TUNABLES", keep + ":glibc.malloc.check=3"},
      {"GLIBC_TUNABLES", keep + " glibc.malloc.hugetlb=1"},
      {"GLIBC_TUNABLES", "glibc.malloc.mmap_max=1"},
      {"glibc_tunables", keep},
      {"PYTORCH_CUDA_ALLOC_CONF", ""},
      {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:true"},
      {"PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True:expandable_segments:True"},
      {"PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync"},
  };
  for (const auto& [name, value] : adversaries) {
    const std::string text = recipe_with(name, value);
    const std::string said = test::user_error([&] { parse_foreign_recipe(text, "r.toml"); });
    EXPECT_EQ(said.rfind("r.toml:2:1: " + name + " is ", 0), 0u) << text << said;
    // What Ridge sets itself stays refused, whoever wrote the recipe.
    if (name == "PYTHONPATH") continue;
    EXPECT_NE(said.find("give --trust"), std::string::npos) << said;
    const ForeignRecipe trusted = parse_foreign_recipe(text, "r", RecipeTrust::kAnyVariable);
    EXPECT_EQ(trusted.environment().count(name), 1u) << text;
  }
  EXPECT_NE(test::user_error([] {
              parse_foreign_recipe(
                  recipe_with("PYTHONPATH", "/tmp"), "r.toml", RecipeTrust::kAnyVariable);
            }).find("PYTHONPATH is what Ridge sets itself"),
            std::string::npos);
}

// Every subset that trials can keep is one of these, for a later trial only adds to a recipe.
TEST(TrustedVariables, WhatTheLoopWritesIsReadWithoutTrust) {
  ForeignMachine machine{.has_huge_pages = true, .has_glibc = true};
  for (const AllocatorLibrary& library : kAllocatorLibraries)
    for (const std::string_view folder : kLibraryFolders)
      machine.allocators.emplace_back(library.name, fmt::format("{}/{}", folder, library.file));
  attach::ProcessFacts facts;
  facts.has_cuda = true;
  for (const Knob& knob : knobs()) {
    const std::string word = knob.words.empty() ? "0-1" : knob.words[0];
    const bool is_flag = knob.type == KnobType::kFlag;
    const std::string number = std::to_string(std::max<int64_t>(1, knob.least));
    facts.offers.push_back({.key = std::string(knob.key),
                            .value = is_flag                          ? "true"
                                     : knob.type == KnobType::kNumber ? number
                                                                      : word});
  }
  const auto proposals =
      foreign_proposals(facts, machine, [](const std::string&) { return std::string(); });
  ForeignRecipe all;
  Words variables;
  for (const ForeignProposal& proposal : proposals) {
    EXPECT_EQ(proposal.refusal, "") << proposal.technique;
    const ForeignRecipe alone = with_proposal({}, proposal);
    all = with_proposal(all, proposal);
    for (const ForeignRecipe& recipe : {alone, all}) {
      const std::string text = to_toml(recipe);
      EXPECT_EQ(test::user_error([&] { parse_foreign_recipe(text, "r.toml"); }), "no error");
      EXPECT_EQ(to_toml(parse_foreign_recipe(text, "r.toml")), text);
    }
    for (const auto& [name, value] : proposal.variables) variables.insert(name);
  }
  EXPECT_EQ(variables.size(), trusted_variables().size());
}

}  // namespace
}  // namespace ridge
