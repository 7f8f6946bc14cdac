#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_norm_kernels(KernelTable&) {}

}  // namespace ridge::cpu
