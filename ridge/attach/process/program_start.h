// The state that this process got from the one that started it. A program that is started in its
// place has to get the same, though main() has changed some of it since.
#pragma once

#include <array>
#include <csignal>
#include <cstdint>
#include <vector>

namespace ridge::attach {

struct ProcessStart {
  sigset_t blocked{};
  uint64_t ignored = 0;             ///< A bit a signal, from 1 on.
  std::array<bool, 3> is_closed{};  ///< stdin, stdout, stderr.
  std::vector<int> inherited{};     ///< Descriptors above those, in order.

  bool is_ignored(int signal) const { return ((ignored >> (signal - 1)) & 1) != 0; }
};

/// Returns the state before main().
const ProcessStart& process_start();

/// Returns the signal that asks a program of ours to end: SIGINT, or SIGTERM where this process was
/// started with SIGINT ignored, as then the program was.
int interrupt_signal();

}  // namespace ridge::attach
