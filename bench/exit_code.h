#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <type_traits>

#include "ridge/base/error.h"

namespace ridge::bench {

/// Runs the body of a benchmark's main() and returns its exit code: what `body` returns, or 0 where
/// it returns nothing; 2 after a mistake of the user's and 3 after any other exception, each
/// reported in one line on stderr.
template <typename Body>
int exit_code(const Body& body) {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body>>) {
      body();
      return 0;
    } else {
      return body();
    }
  } catch (const UserError& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 3;
  }
}

}  // namespace ridge::bench
