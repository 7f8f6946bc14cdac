// Measures the peak arithmetic and memory rates of this machine: the roof that kernels are compared
// with.
#pragma once

#include <cstddef>

#include "ridge/base/dtype.h"

namespace ridge::cpu {

/// FLOP/s of fused multiply-adds between registers (a multiply and an add count two), with the
/// instruction set in use, on all threads of parallel_for: the best of so many runs of about half a
/// millisecond. For f32, f64 or bf16, whose products may run as those of f32, by vdpbf16ps
/// where has_bf16_pairs(), and by tiles where has_amx(): the fastest of them. InternalError
/// otherwise.
double measure_fma_peak(DType dtype, int runs = 5);

/// Bytes/s (read plus written) of copying `bytes` (rounded up to 4096 a chunk) past the caches, on
/// all threads: the best of three runs. Allocates and frees twice that much; choose it several
/// times larger than the last cache.
double measure_copy_bandwidth(size_t bytes);

}  // namespace ridge::cpu
