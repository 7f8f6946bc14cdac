// Printed kernels as functions of this machine: their sources, compiled on top of simt.h, many at a
// time. What was compiled is kept in the user's cache, by all that it depends on.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "tests/backend/cuda/simulation/simulated_image.h"

namespace ridge::test {

struct SimulatedEntry {
  std::string name;
  std::vector<size_t> parameters;  ///< Addresses in each.
};

/// The kernels of a source.
std::vector<SimulatedEntry> entries_of(const std::string& source);

/// The shared object of all sources, which may include `headers` and the standard's.
/// std::runtime_error with the compiler's words when it refuses them. `is_sanitized`: by the
/// compiler of the tests for AddressSanitizer; else g++ makes what all builds share.
std::filesystem::path compile_simulated(const std::vector<std::string>& sources,
                                        const std::map<std::string, std::string>& headers,
                                        bool is_sanitized);

}  // namespace ridge::test
