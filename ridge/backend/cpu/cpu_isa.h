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

enum class Isa : uint8_t { kAvx2, kAvx512 };

inline constexpr Isa kAllIsas[] = {Isa::kAvx2, Isa::kAvx512};

/// "avx2" or "avx512".
std::string_view name_of(Isa isa);

/// Whether the machine `cpu` runs that set: AVX2 with FMA and F16C; AVX-512 F, BW, DQ and VL.
bool has_isa(Isa isa, const CpuInfo& cpu = cpu_info());

/// The set named by `wish`: "auto" (or empty) is the best of `cpu`. UserError for another
/// name, and where the machine lacks the set.
Isa choose_isa(std::string_view wish, const CpuInfo& cpu = cpu_info());

/// The set in use: at first choose_isa of the setting cpu.isa.
Isa isa();

/// Uses `isa` from now on, whatever the setting says; UserError where the machine lacks it.
/// Not while kernels run.
void set_isa(Isa isa);

/// Whether bf16 is multiplied by vdpbf16ps: the set in use is AVX-512 and the machine has it.
bool has_bf16_pairs();

/// The one of two things that belongs to the set in use.
template <typename T>
const T& for_isa(const T& avx2, const T& avx512) {
  return isa() == Isa::kAvx512 ? avx512 : avx2;
}

}  // namespace ridge::cpu
