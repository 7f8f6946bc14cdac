// Whether the launches of a step are captured: a key of the configuration and an option of a
// program.
#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/named_enum.h"

namespace ridge {

/// Whether the launches of an entry are recorded when it first runs, and then launched as one.
enum class Capture : uint8_t {
  kAuto,  ///< Records where the device can.
  kOn,    ///< UserError where the device cannot.
  kOff,
};
constexpr std::string_view names_of(Capture) { return "auto|on|off"; }

}  // namespace ridge
