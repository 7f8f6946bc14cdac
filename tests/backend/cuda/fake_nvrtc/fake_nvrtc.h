// The controls of the stand-in for NVRTC (fake_nvrtc.cc).
#pragma once

#include <atomic>
#include <cstddef>
#include <string>
#include <vector>

namespace ridge::test {

/// Compiles many sources as one, which takes a fraction of the time; later each is found. 0: they
/// do compile.
inline constexpr const char* kCompileTogether = "fake_nvrtc_compile_together";
using CompileTogether = int(const char* const* sources,
                            size_t count,
                            const char* const* header_texts,
                            const char* const* header_names,
                            size_t headers);

/// Values that a test sets and reads; at first all is zero and empty.
struct FakeNvrtcControl {
  std::atomic<int> compilations = 0, at_once = 0, most_at_once = 0;
  /// A compilation goes on when so many run at once; a minute without them is a hang.
  std::atomic<int> meeting = 0;
  /// A source that has one of these texts is refused.
  std::vector<std::string> refused;
  /// Kernels do nothing, which takes no time to compile: for tests of what is launched.
  bool makes_empty = false;
  /// Devices that it knows.
  std::vector<int> architectures = {75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121};
};
inline constexpr const char* kFakeNvrtcControl = "fake_nvrtc_control";
using FakeNvrtcControlEntry = FakeNvrtcControl*();

}  // namespace ridge::test
