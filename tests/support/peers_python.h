// The Python of the peers' environment (./dev peers), for tests of what programs in PyTorch do.
#pragma once

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace ridge::test {

/// The path of an interpreter that has torch: $RIDGE_PEERS_PYTHON or build/peers/bin/python of the
/// checkout that the test runs in; empty where there is none, and the test says "skipped".
inline std::string peers_python() {
  const char* named = std::getenv("RIDGE_PEERS_PYTHON");
  const std::filesystem::path path = named != nullptr
                                         ? std::filesystem::path(named)
                                         : std::filesystem::absolute("build/peers/bin/python");
  return ::access(path.c_str(), X_OK) == 0 ? path.string() : std::string();
}

/// Why a test that needs it is skipped.
inline constexpr const char* kNoPeers = "no build/peers/bin/python: ./dev peers installs it";

}  // namespace ridge::test
