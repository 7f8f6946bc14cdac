#pragma once

#include <optional>

#include "ridge/backend/cpu/jit/program.h"
#include "ridge/backend/cpu/loop.h"

namespace ridge::cpu::jit {

/// The loop in primitive operations; nothing where an op or dtype has no such form. f64 functions
/// that call libm have none. `scales`: for a machine with Prim::kScale.
std::optional<Program> lower(const Loop& loop, bool scales);

}  // namespace ridge::cpu::jit
