#include "ridge/base/cpu/cpu_info.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>
#include <string_view>
#include <vector>

#include "ridge/base/cpu/cpu_affinity.h"
#include "ridge/base/error.h"
#include "ridge/base/sysfs.h"

namespace ridge {
namespace {

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

// Zeros for a leaf that the processor does not have.
Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (!__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx)) return {};
  return r;
}

bool bit(unsigned word, int index) { return (word >> index) & 1u; }

// Register sets that the operating system saves at a switch (XCR0).
unsigned saved_state() {
  if (!bit(cpuid(1, 0).ecx, 27)) return 0;  // OSXSAVE: without it xgetbv itself is illegal
  unsigned low = 0, high = 0;
  __asm__("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

// The kernel has a process ask before it saves 8 KiB of tiles at each of its switches. It refuses
// where a stack for signals is too small to hold them.
bool may_use_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

void read_features(CpuInfo& info) {
  constexpr unsigned kAvxState = 0x06;      // SSE and AVX halves
  constexpr unsigned kAvx512State = 0xe6;   // and masks, upper halves, registers 16 to 31
  constexpr unsigned kTileState = 0x60000;  // configuration and data of AMX tiles
  const unsigned saved = saved_state();
  const unsigned leaf1 = cpuid(1, 0).ecx;
  const Registers leaf7 = cpuid(7, 0);
  info.avx2 = (saved & kAvxState) == kAvxState && bit(leaf1, 28) && bit(leaf1, 12) &&
              bit(leaf1, 29) && bit(leaf7.ebx, 5);
  info.avx512 = info.avx2 && (saved & kAvx512State) == kAvx512State && bit(leaf7.ebx, 16) &&
                bit(leaf7.ebx, 17) && bit(leaf7.ebx, 30) && bit(leaf7.ebx, 31);
  info.vnni = info.avx512 && bit(leaf7.ecx, 11);
  info.vbmi = info.avx512 && bit(leaf7.ecx, 1);
  info.avx_vnni = info.avx2 && bit(cpuid(7, 1).eax, 4);
  info.bf16 = info.avx512 && bit(cpuid(7, 1).eax, 5);
  constexpr uint32_t kAuth = 0x68747541;  // of "AuthenticAMD"
  info.fast_bf16 = info.bf16 && cpuid(0, 0).ebx == kAuth;
  info.amx = info.bf16 && (saved & kTileState) == kTileState && bit(leaf7.edx, 24) &&
             bit(leaf7.edx, 22) && may_use_tiles();
  info.amx_int8 = info.amx && bit(leaf7.edx, 25);
}

std::string read_model() {
  std::string model;
  for (unsigned leaf = 0x80000002u; leaf <= 0x80000004u; ++leaf) {
    const Registers r = cpuid(leaf, 0);
    for (unsigned word : {r.eax, r.ebx, r.ecx, r.edx})
      for (int i = 0; i < 4; ++i) model.push_back(static_cast<char>((word >> (8 * i)) & 0xffu));
  }
  model.erase(std::find(model.begin(), model.end(), '\0'), model.end());
  const size_t first = model.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return model.substr(first, model.find_last_not_of(' ') - first + 1);
}

void read_caches(CpuInfo& info) {
  const std::vector<int> cpus = allowed_cpus();
  const std::string folder =
      fmt::format("/sys/devices/system/cpu/cpu{}/cache/index", cpus.empty() ? 0 : cpus.front());
  int64_t* const sizes[] = {&info.l1_bytes, &info.l2_bytes, &info.l3_bytes};
  for (int index = 0; index < 8; ++index) {
    const std::string cache = folder + std::to_string(index);
    const int level = std::atoi(first_line(cache + "/level").c_str());
    if (level < 1 || level > 3 || first_line(cache + "/type") == "Instruction") continue;
    const std::string size = first_line(cache + "/size");  // "32K"
    int64_t scale = 1;
    if (!size.empty() && size.back() == 'K') scale = 1024;
    if (!size.empty() && size.back() == 'M') scale = 1024 * 1024;
    *sizes[level - 1] = std::atoll(size.c_str()) * scale;
  }
  const int names[] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
  for (int i = 0; i < 3; ++i)  // some containers hide sysfs
    if (*sizes[i] <= 0) *sizes[i] = std::max<int64_t>(0, sysconf(names[i]));
}

// The limit that one cgroup folder sets; 0 for none.
double quota_of_folder(const std::string& folder) {
  double quota = 0, period = 0;
  std::istringstream v2(first_line(folder + "/cpu.max"));  // "150000 100000" or "max 100000"
  if (!(v2 >> quota >> period)) {
    quota = std::atof(first_line(folder + "/cpu.cfs_quota_us").c_str());  // -1 for none
    period = std::atof(first_line(folder + "/cpu.cfs_period_us").c_str());
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

// The strictest limit of `group` ("/a/b") and its ancestors under `mount`; 0 for none. A
// container often sees its own group as the mount's root, so paths that do not exist are fine.
double strictest_quota(const std::string& mount, std::string group) {
  double strictest = 0;
  for (;;) {
    const double quota = quota_of_folder(mount + group);
    if (quota > 0 && (strictest == 0 || quota < strictest)) strictest = quota;
    const size_t slash = group.find_last_of('/');
    if (group.empty() || slash == std::string::npos) return strictest;
    group.erase(slash);
  }
}

}  // namespace

double cgroup_cpu_quota(const std::string& root) {
  std::ifstream groups(root + "/proc/self/cgroup");
  double strictest = 0;
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/a/b" or "0::/a/b"
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    std::vector<std::string_view> mounts;
    if (controllers == ",,")
      mounts = {"", "/unified"};
    else if (controllers.find(",cpu,") != std::string::npos)
      mounts = {"/cpu", "/cpu,cpuacct", "/cpuacct,cpu"};
    for (std::string_view mount : mounts) {
      const double quota =
          strictest_quota(fmt::format("{}/sys/fs/cgroup{}", root, mount), line.substr(second + 1));
      if (quota > 0 && (strictest == 0 || quota < strictest)) strictest = quota;
    }
  }
  return strictest;
}

double short_product_speed() {
  // An instruction of AVX512-BF16 does twice the products of one of FP32 where it is fast, one of
  // AMX 16 times; what brings the operands along takes a part of that.
  constexpr double kAvx512 = 2, kAmx = 8;
  const CpuInfo& info = cpu_info();
  return info.amx ? kAmx : info.fast_bf16 ? kAvx512 : 1;
}

int usable_cpus() {
  const int in_mask = std::max(1, static_cast<int>(allowed_cpus().size()));
  const double quota = cgroup_cpu_quota();
  if (quota <= 0 || quota >= in_mask) return in_mask;
  return std::max(1, static_cast<int>(std::ceil(quota)));
}

const CpuInfo& cpu_info() {
  static const CpuInfo info = [] {
    CpuInfo made;
    read_features(made);
    made.model = read_model();
    read_caches(made);
    made.usable_cpus = usable_cpus();
    return made;
  }();
  return info;
}

double stolen_seconds() {
  std::FILE* file = std::fopen("/proc/stat", "re");
  if (file == nullptr) return 0;
  unsigned long long steal = 0;
  const int found = std::fscanf(file, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal);
  std::fclose(file);
  constexpr double kTicksPerSecond = 100;  // USER_HZ on every Linux
  return found == 1 ? static_cast<double>(steal) / kTicksPerSecond : 0;
}

}  // namespace ridge
