// The command line, run in this process.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "ridge/cli/command.h"

namespace ridge::test {

struct Outcome {
  int code;
  std::string out, err;
};

/// `ridge WORDS`, with what it wrote.
inline Outcome run(std::vector<std::string> words) {
  words.insert(words.begin(), "ridge");
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  const int code = run_command(static_cast<int>(argv.size()), argv.data());
  std::fflush(stdout);
  return {code, ::testing::internal::GetCapturedStdout(), ::testing::internal::GetCapturedStderr()};
}

}  // namespace ridge::test
