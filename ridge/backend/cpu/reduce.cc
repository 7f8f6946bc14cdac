#include "ridge/backend/cpu/cpu_kernels.h"

namespace ridge::cpu {

void add_reduce_kernels(KernelTable&) {}

}  // namespace ridge::cpu
