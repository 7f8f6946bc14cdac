// One configuration under the memory limit that its plan allows: bench/memory.py runs all.
//
//   bench_memory_check CONFIG STEPS [KEY=VALUE...]
//
// Trains so many steps with RLIMIT_DATA = VmData before the plan's memory + 1.02 of the plan + 8
// MiB, and prints a JSON object of bytes.
#include "tests/support/memory_check.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>

#include "bench/exit_code.h"
#include "ridge/config/text.h"

int main(int count, char** words) {
  if (count < 3) {
    std::fputs("usage: bench_memory_check CONFIG STEPS [KEY=VALUE...]\n", stderr);
    return 2;
  }
  return ridge::bench::exit_code([&] {
    ridge::Settings scratch;
    std::vector<ridge::ConfigFlag> flags;
    for (int i = 3; i < count; ++i) flags.push_back(ridge::parse_set(words[i]));
    const ridge::TrainConfig config = ridge::load_config_file(words[1], flags, scratch).config;
    const ridge::test::MemoryCheck found = ridge::test::check_memory(config, std::atol(words[2]));
    fmt::print(
        "{{\"planned\": {}, \"lower_bound\": {}, \"state\": {}, \"measured\": {}, "
        "\"captured\": {}, \"limit_seconds\": {:.2f}, \"limit_text\": \"{}\"}}\n",
        found.planned_bytes,
        found.lower_bound_bytes,
        found.state_bytes,
        found.measured_bytes,
        found.captured_bytes,
        found.limit_seconds,
        found.limit_text);
  });
}
