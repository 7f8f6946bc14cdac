// Which x86 instruction set the CPU kernels use, chosen once at run time.
//
// Kernels are compiled for each set into ridge::cpu::avx2 and ridge::cpu::avx512
// (cmake/kernels.cmake). A family of kernels declares one table of function pointers, defines one
// in each namespace, and picks with for_isa(avx2::table, avx512::table).
#pragma once

#include <cstdint>
#include <string_view>

#include "ridge/base/cpu/cpu_info.h"

namespace ridge::cpu {

enum class Isa : uint8_t {
  kAvx2,
  kAvx512,
  kAmx,  ///< The kernels of AVX-512, and products of bf16 by tiles (AMX).
};

/// Those that kernels are compiled for.
inline constexpr Isa kAllIsas[] = {Isa::kAvx2, Isa::kAvx512};

/// "avx2", "avx512" or "amx".
std::string_view name_of(Isa isa);

/// Whether the machine `cpu` runs that set: AVX2 with FMA and F16C; AVX-512 F, BW, DQ and VL; AMX
/// with its products of bf16, and AVX512-BF16.
bool has_isa(Isa isa, const CpuInfo& cpu = cpu_info());

/// The set named by `wish`: "auto" (or empty) is the best of `cpu`. UserError for another
/// name, and where the machine lacks the set.
Isa choose_isa(std::string_view wish, const CpuInfo& cpu = cpu_info());

/// The set in use: at first choose_isa of the setting cpu.isa.
Isa isa();

/// Uses `isa` from now on, whatever the setting says; UserError where the machine lacks it.
/// Not while kernels run.
void set_isa(Isa isa);

/// Whether the set in use has the vectors of AVX-512.
inline bool has_avx512() { return isa() != Isa::kAvx2; }
/// Whether bf16 is multiplied by vdpbf16ps: the set in use is AVX-512 and the machine has it.
bool has_bf16_pairs();
/// Whether bf16 is multiplied by tiles.
inline bool has_amx() { return isa() == Isa::kAmx; }

/// The one of two things that belongs to the set in use.
template <typename T>
const T& for_isa(const T& avx2, const T& avx512) {
  return has_avx512() ? avx512 : avx2;
}

}  // namespace ridge::cpu
