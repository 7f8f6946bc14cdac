// Convolution with one input channel and one output channel a group.
#pragma once

#include "ridge/backend/host.h"

namespace ridge::cpu {

/// Adds the choice "depthwise" of conv2d and of its two gradients.
void add_depthwise_kernels(KernelTable& table);

}  // namespace ridge::cpu
