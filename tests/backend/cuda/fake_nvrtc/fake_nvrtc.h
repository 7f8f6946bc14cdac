// What a test asks of the stand-in for NVRTC (fake_nvrtc.cc), beside what NVRTC does.
#pragma once

#include <cstddef>

#include "tests/backend/cuda/fake_nvrtc/simulated_image.h"

namespace ridge::test {

/// Compiles many sources as one, which takes a fraction of the time; later each is found. 0: they
/// do compile.
inline constexpr const char* kCompileTogether = "fake_nvrtc_compile_together";
using CompileTogether = int(const char* const* sources,
                            size_t count,
                            const char* const* header_texts,
                            const char* const* header_names,
                            size_t headers);

}  // namespace ridge::test
