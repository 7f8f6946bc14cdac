// Convolutions whose weights lie packed: products that gather the patches of some rows where they
// are multiplied.
#pragma once

#include <vector>

#include "ridge/backend/cpu/gemm/product_kernel.h"

namespace ridge::cpu {

/// The weights of a conv2d as the panels of gemm_packed(); empty for 16-bit elements, for several
/// groups and for shapes without panels.
std::vector<PackedOperand> conv_panels(const Node& conv);

/// The product of a conv2d over those panels, with the bits of its products of patches; it needs no
/// workspace.
ProductKernel make_packed_conv(const Node& conv);

}  // namespace ridge::cpu
