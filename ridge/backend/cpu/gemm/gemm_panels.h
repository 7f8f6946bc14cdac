// Weights as the panels of gemm_packed().
#pragma once

#include "ridge/backend/cpu/gemm/gemm.h"
#include "ridge/backend/host.h"

namespace ridge::cpu {

/// The operand `input` of a product of that shape, a parameter, as the panels of gemm_packed(). All
/// its dimensions but that of the columns make up the depth.
PackedOperand panels_operand(size_t input, const GemmShape& shape, const GemmPanels& panels);

}  // namespace ridge::cpu
