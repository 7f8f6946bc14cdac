#include "ridge/backend/cpu/cpu_isa.h"

#include <fmt/format.h>

#include <atomic>

#include "ridge/base/error.h"
#include "ridge/base/settings.h"

namespace ridge::cpu {
namespace {

constexpr int kUndecided = -1;
std::atomic<int> chosen{kUndecided};

void require_isa(Isa isa, const CpuInfo& cpu = cpu_info()) {
  if (has_isa(isa, cpu)) return;
  if (isa == Isa::kAvx2)
    throw UserError("this CPU lacks AVX2, FMA or F16C, which every kernel of Ridge needs",
                    "run it on an x86-64 machine that has them");
  if (isa == Isa::kAmx)
    throw UserError("cpu.isa is 'amx', but this CPU or its system lacks tiles of bf16 (AMX)",
                    "set cpu.isa or RIDGE_CPU_ISA to auto");
  throw UserError("cpu.isa is 'avx512', but this CPU lacks AVX-512 F, BW, DQ or VL",
                  "set cpu.isa or RIDGE_CPU_ISA to auto");
}

}  // namespace

std::string_view name_of(Isa isa) {
  if (isa == Isa::kAmx) return "amx";
  return isa == Isa::kAvx2 ? "avx2" : "avx512";
}

bool has_isa(Isa isa, const CpuInfo& cpu) {
  if (isa == Isa::kAmx) return cpu.amx;
  return isa == Isa::kAvx2 ? cpu.avx2 : cpu.avx512;
}

Isa choose_isa(std::string_view wish, const CpuInfo& cpu) {
  constexpr Isa kWidestFirst[] = {Isa::kAmx, Isa::kAvx512, Isa::kAvx2};
  const bool takes_any = wish.empty() || wish == "auto";
  for (const Isa isa : kWidestFirst) {
    const bool is_last = isa == Isa::kAvx2;
    if (takes_any ? !has_isa(isa, cpu) && !is_last : wish != name_of(isa)) continue;
    require_isa(isa, cpu);
    return isa;
  }
  throw UserError(fmt::format("cpu.isa is '{}'; it must be auto, avx2, avx512 or amx", wish));
}

Isa isa() {
  const int known = chosen.load(std::memory_order_relaxed);
  if (known != kUndecided) return static_cast<Isa>(known);
  const Isa first = choose_isa(settings().get_string("cpu.isa"));
  // Another thread may decide at the same time; a set_isa that came between must win.
  int expected = kUndecided;
  chosen.compare_exchange_strong(expected, static_cast<int>(first));
  return static_cast<Isa>(chosen.load());
}

bool has_bf16_pairs() { return has_avx512() && cpu_info().bf16; }

void set_isa(Isa isa) {
  require_isa(isa);
  chosen.store(static_cast<int>(isa));
}

}  // namespace ridge::cpu
