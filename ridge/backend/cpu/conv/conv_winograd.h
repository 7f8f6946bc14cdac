// 3x3 convolution of stride 1 by Winograd's F(2x2, 3x3).
#pragma once

#include "ridge/backend/host.h"

namespace ridge::cpu {

/// Adds the choice "winograd" of conv2d and of the gradient of its input: f32, one group, channels
/// in multiples of 16. Sixteen products where sums of patches take 36; a pixel that is not finite
/// reaches the whole 2x2 tiles of the results that it enters.
void add_winograd_kernels(KernelTable& table);

}  // namespace ridge::cpu
