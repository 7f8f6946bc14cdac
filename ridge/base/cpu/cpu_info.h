// The instruction sets of this machine's processor and the number of CPUs that this process may
// use.
#pragma once

#include <cstdint>
#include <string>

namespace ridge {

/// Features count only when the operating system saves their registers too (XGETBV).
struct CpuInfo {
  bool avx2 = false;       // AVX2, FMA and F16C
  bool avx512 = false;     // AVX-512 F, BW, DQ and VL, and all of `avx2`
  bool avx_vnni = false;   // AVX-VNNI, products of bytes in 256 bits, with `avx2`
  bool vnni = false;       // AVX-512 VNNI, with `avx512`
  bool vbmi = false;       // AVX-512 VBMI, tables of bytes, with `avx512`
  bool bf16 = false;       // AVX-512 BF16, with `avx512`
  bool fast_bf16 = false;  // vdpbf16ps makes twice the products of FP32: AMD's; Intel's makes half
  bool amx = false;        // AMX tiles of bf16 that the system lets this process use, with `bf16`
  bool amx_int8 = false;   // AMX tiles of bytes, with `amx`
  std::string model;       // "AMD EPYC 7763 64-Core Processor"; empty when unknown
  int64_t l1_bytes = 0;    // data or unified cache that the first usable CPU sees; 0 when unknown
  int64_t l2_bytes = 0;
  int64_t l3_bytes = 0;
  int usable_cpus = 1;  // result of usable_cpus()
};

/// Read once, at the first call.
const CpuInfo& cpu_info();

/// Times as fast as in FP32, about, it multiplies matrices of BF16: 1 where it has no instructions
/// for that.
double short_product_speed();

/// CPUs that this process may use: its affinity mask or its cgroup's CPU quota (v1 and v2, the
/// strictest of its ancestors, rounded up to whole CPUs), whichever is less; at least 1.
int usable_cpus();

/// CPUs' worth of time that cgroups allow (1.5 = 150 ms each 100 ms), or 0 for no limit. Reads
/// proc/self/cgroup and sys/fs/cgroup under `root`, which is "/" outside tests.
double cgroup_cpu_quota(const std::string& root = "/");

/// CPU time in seconds that the hypervisor gave to others while this machine wanted it, since it
/// started; 0 where the system does not report it.
double stolen_seconds();

}  // namespace ridge
