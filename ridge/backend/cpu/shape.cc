#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_shape_kernels(KernelTable&) {}

}  // namespace ridge::cpu
