#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_random_kernels(KernelTable&) {}

}  // namespace ridge::cpu
