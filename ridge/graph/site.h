// The stable name of a node.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ridge {

/// Module path, operation and ordinal: "blocks.0.attn:matmul.1" is the second matmul that was
/// built inside blocks.0.attn. A gradient node's path is the site it differentiates:
/// "blocks.0.attn:matmul.1/grad:transpose.0". Every pass preserves sites; random numbers,
/// precision pins, profiles, the guard and the ledger are keyed by them.
struct Site {
  std::string name;

  bool operator==(const Site&) const = default;
};

}  // namespace ridge
