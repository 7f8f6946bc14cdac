#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_pool_kernels(KernelTable&) {}

}  // namespace ridge::cpu
