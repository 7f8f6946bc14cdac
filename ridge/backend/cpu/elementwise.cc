#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_elementwise_kernels(KernelTable&) {}

}  // namespace ridge::cpu
