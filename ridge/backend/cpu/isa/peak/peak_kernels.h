// Kernels behind peak.h, one set for each instruction set.
#pragma once

#include <cstdint>

namespace ridge::cpu {

struct PeakKernels {
  // Runs independent fma chains for `rounds` rounds; returns the FLOPs done. `sink` receives one
  // value, so that the work cannot be dropped.
  double (*fma_f32)(int64_t rounds, float* sink);
  double (*fma_f64)(int64_t rounds, double* sink);
  // Non-temporal copy; both pointers are 64-byte aligned and bytes is a multiple of 256.
  void (*copy)(const void* from, void* to, int64_t bytes);
};

namespace avx2 {
extern const PeakKernels peak_kernels;
}
namespace avx512 {
extern const PeakKernels peak_kernels;
// Runs `rounds` rounds of vdpbf16ps, for machines that have it (two products and two sums a lane);
// returns the FLOPs done, as fma_f32 does.
double dot_bf16(int64_t rounds, float* sink);
}  // namespace avx512

}  // namespace ridge::cpu
