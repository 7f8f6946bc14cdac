// A program of tests/attach/programs, run by the Python of the peers with a shim or without.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "ridge/attach/shim.h"
#include "tests/support/temp_folder.h"

namespace ridge::test {

struct ShimmedEnd {
  int code = -1;
  std::string out, err;
  attach::ProcessFacts facts{};  ///< Facts of the one process that has torch; with a shim.
  /// The one knob of its recipe.
  attach::KnobFacts knob() const {
    EXPECT_EQ(facts.knobs.size(), 1u);
    return facts.knobs.empty() ? attach::KnobFacts{} : facts.knobs.front();
  }
};

inline std::string whole_text(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// `words`: "PROGRAM.py ARGUMENTS"; it has to end well.
inline ShimmedEnd run_shimmed(const std::string& python,
                              const std::string& words,
                              const std::optional<attach::ShimOptions>& options = {}) {
  const TempFolder folder;
  std::optional<attach::ShimFolder> shim;
  std::string command = "cd '" + folder.path().string() + "' && exec env -u PYTHONPATH";
  if (options) {
    shim.emplace(*options);
    for (const auto& [name, value] : shim->environment())
      command += fmt::format(" '{}={}'", name, value);
  }
  command += fmt::format(" timeout -k 1 280 '{}' -B '{}/'{} >.out 2>.err </dev/null",
                         python,
                         std::filesystem::absolute("tests/attach/programs").string(),
                         words);
  const int status = std::system(command.c_str());
  ShimmedEnd end{WIFEXITED(status) ? WEXITSTATUS(status) : -1,
                 whole_text(folder / ".out"),
                 whole_text(folder / ".err")};
  EXPECT_EQ(end.code, 0) << end.err;
  if (!shim) return end;
  const std::vector<attach::ProcessFacts> all = shim->facts();
  EXPECT_EQ(all.size(), 1u) << end.err;
  if (!all.empty()) end.facts = all.front();
  return end;
}

/// Runs the program with a recipe, which is given as JSON.
inline ShimmedEnd run_with_recipe(const std::string& python,
                                  const std::string& recipe,
                                  const std::string& words) {
  return run_shimmed(python, words, attach::ShimOptions{.profiled_steps = 0, .recipe = recipe});
}

}  // namespace ridge::test
