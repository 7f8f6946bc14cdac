#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_conv_kernels(KernelTable&) {}

}  // namespace ridge::cpu
