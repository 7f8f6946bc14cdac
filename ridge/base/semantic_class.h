// How much a change of a program may change its numbers: the field's question of every
// optimization.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace ridge {

/// How far a change may move the numbers.
enum class SemanticClass : uint8_t {
  kBitIdentical,   ///< The same bits (NaN payloads aside).
  kReassociation,  ///< The same formula in another order, or another kernel.
  kPrecision,      ///< Other dtypes.
  kTrajectory,     ///< Another computation.
};

/// "bit_identical", "reassociation", "precision", "trajectory".
std::string_view name_of(SemanticClass semantic_class);
std::optional<SemanticClass> parse_semantic_class(std::string_view name);

}  // namespace ridge
