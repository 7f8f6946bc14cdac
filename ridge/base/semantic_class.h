// How much a change of a program may change its numbers: the field's question of every
// optimization.
#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/named_enum.h"

namespace ridge {

/// How far a change may move the numbers.
enum class SemanticClass : uint8_t {
  kBitIdentical,   ///< The same bits (NaN payloads aside).
  kReassociation,  ///< The same formula in another order, or another kernel.
  kPrecision,      ///< Other dtypes.
  kTrajectory,     ///< Another computation.
};
constexpr std::string_view names_of(SemanticClass) {
  return "bit_identical|reassociation|precision|trajectory";
}

}  // namespace ridge
