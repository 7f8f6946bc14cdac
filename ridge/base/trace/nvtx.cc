// The binary interface between programs and profilers is written down here from NVIDIA's published
// description of NVTX 3, as much of it as is needed to be asked for pushed and popped ranges.
#include "ridge/base/trace/nvtx.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "ridge/base/html/markup.h"
#include "ridge/base/trace/trace.h"

namespace ridge {
namespace {

using Function = void();
/// Slot by slot where the profiler puts its function.
using FunctionTable = Function***;

// Modules of functions, by number; all have at most kSlots with the first, which is none.
enum Module : int { kCore = 1, kCuda = 2, kOpenCl = 3, kCudaRuntime = 4, kCore2 = 5, kSync = 6 };
constexpr size_t kModules = 7, kSlots = 16;
constexpr unsigned kSizes[kModules] = {0, 16, 9, 15, 7, 16, 7};
// Slots of the module kCore: a range begins with a text, and ends without arguments.
constexpr size_t kRangePush = 9, kRangePop = 11;
using RangePush = int(const char*);
using RangePop = int();

// Tables that are handed out by number.
constexpr uint32_t kCallbacksTable = 1, kVersionTable = 3;
struct Callbacks {
  size_t bytes;
  int (*get_functions)(Module module, FunctionTable* table, unsigned* size);
};
struct Version {
  size_t bytes;
  uint32_t version, reserved;
  void (*set_injection_version)(uint32_t version);
};
using GetTable = const void*(uint32_t table);
using Initialize = int(GetTable* get_table);

Function* functions[kModules][kSlots];
Function** places[kModules][kSlots];

int get_functions(Module module, FunctionTable* table, unsigned* size) {
  if (module < kCore || module > kSync) return 0;
  for (size_t i = 1; i < kSlots; ++i) places[module][i] = &functions[module][i];
  if (table != nullptr) *table = places[module];
  if (size != nullptr) *size = kSizes[module];
  return 1;
}

void ignore_version(uint32_t) {}

const void* get_table(uint32_t table) {
  static constexpr Callbacks kCallbacks = {sizeof(Callbacks), get_functions};
  static constexpr Version kVersion = {sizeof(Version), 3, 0, ignore_version};
  if (table == kCallbacksTable) return &kCallbacks;
  if (table == kVersionTable) return &kVersion;
  return nullptr;
}

void push(const char* name) { reinterpret_cast<RangePush*>(functions[kCore][kRangePush])(name); }
void pop() { reinterpret_cast<RangePop*>(functions[kCore][kRangePop])(); }
constexpr ScopeHooks kHooks = {push, pop};

std::string start() {
  const char* const path = std::getenv("NVTX_INJECTION64_PATH");
  if (path == nullptr || *path == '\0') return {};
  constexpr const char* kNothing = "the profiler sees no ranges of Ridge";
  const auto failure = [&](const std::string& why) {
    return fmt::format("{}: NVTX_INJECTION64_PATH: {}", kNothing, why);
  };
  // Never closed: its functions are called until the process ends.
  void* const library = ::dlopen(path, RTLD_LAZY);
  if (library == nullptr) {
    const char* const reason = ::dlerror();
    return failure(shortened(reason == nullptr ? path : reason, 200));
  }
  auto* const initialize =
      reinterpret_cast<Initialize*>(::dlsym(library, "InitializeInjectionNvtx2"));
  if (initialize == nullptr)
    return failure(fmt::format("'{}' has no function InitializeInjectionNvtx2", plain_line(path)));
  if (initialize(get_table) == 0)
    return failure(fmt::format("'{}' refused to start", plain_line(path)));
  // One that wants no ranges, only marks for example, is a profiler all the same.
  if (functions[kCore][kRangePush] == nullptr || functions[kCore][kRangePop] == nullptr) return {};
  hear_scopes(ScopeListener::kProfiler, kHooks);
  return {};
}

}  // namespace

std::string start_profiler_ranges() {
  static const std::string note = start();
  static bool is_told = false;
  return std::exchange(is_told, true) ? std::string{} : note;
}

}  // namespace ridge
