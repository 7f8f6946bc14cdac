// The bits of an F16 and of a BF16 as types of their own. Kernel files use them, for the header of
// F16 and BF16 has inline functions.
#pragma once

#include <cstdint>

namespace ridge::cpu {

enum class F16Bits : uint16_t {};
enum class BF16Bits : uint16_t {};

}  // namespace ridge::cpu
