#include "ridge/base/machine/machine.h"

#include <fmt/format.h>

#include <cstdlib>

#include "ridge/base/cpu/cpu_info.h"
#include "ridge/base/cpu/parallel.h"
#include "ridge/base/settings.h"

namespace ridge {

std::filesystem::path cache_folder() {
  // The specification of XDG has relative paths ignored.
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache == '/') return std::filesystem::path(cache) / "ridge";
  const char* home = std::getenv("HOME");
  if (home != nullptr && *home == '/') return std::filesystem::path(home) / ".cache" / "ridge";
  return {};
}

std::string processor_text() {
  const CpuInfo& cpu = cpu_info();
  std::string features;
  if (cpu.avx2) features += " avx2";
  if (cpu.avx512) features += " avx512";
  if (cpu.vnni) features += " vnni";
  if (cpu.bf16) features += " bf16";
  if (cpu.amx) features += " amx";
  return fmt::format("{};{}", cpu.model, features);
}

std::string machine_fingerprint(std::string_view device) {
  return fmt::format("{}; {}; {} CPUs; {} threads; isa {}; ridge {}",
                     device,
                     processor_text(),
                     usable_cpus(),
                     num_threads(),
                     settings().get_string("cpu.isa"),
                     RIDGE_VERSION);
}

}  // namespace ridge
