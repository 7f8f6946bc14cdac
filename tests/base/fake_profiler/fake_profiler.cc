// A stand-in for a profiler's injection library: it writes the ranges that it gets to stderr,
// "<NAME" and ">". With FAKE_PROFILER=refuse it does not start, with FAKE_PROFILER=marks it wants
// no ranges.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

// NOLINTBEGIN(readability-identifier-naming): the names are those of NVTX.
namespace {

using Pointer = void (*)();
struct Callbacks {
  size_t struct_size;
  int (*GetModuleFunctionTable)(int module, Pointer*** table, unsigned* size);
};
struct VersionInfo {
  size_t struct_size;
  uint32_t version, reserved0;
  void (*SetInjectionNvtxVersion)(uint32_t version);
};

int push(const char* name) {
  std::fprintf(stderr, "<%s", name);
  return 0;
}
int pop() {
  std::fputc('>', stderr);
  return 0;
}

bool is(const char* mode) {
  const char* const asked = std::getenv("FAKE_PROFILER");
  return asked != nullptr && asked == std::string(mode);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*get_table)(uint32_t)) {
  if (is("refuse")) return 0;
  const auto* const version = static_cast<const VersionInfo*>(get_table(3));
  const auto* const callbacks = static_cast<const Callbacks*>(get_table(1));
  if (version == nullptr || version->version != 3 || callbacks == nullptr ||
      callbacks->struct_size < sizeof(Callbacks) || get_table(77) != nullptr)
    return 0;
  version->SetInjectionNvtxVersion(3);
  Pointer** table = nullptr;
  unsigned size = 0;
  // Asks, like a profiler, for each module that there is and each of its functions.
  constexpr unsigned kSizes[] = {0, 16, 9, 15, 7, 16, 7};
  for (int module = 1; module <= 6; ++module) {
    if (callbacks->GetModuleFunctionTable(module, &table, &size) != 1 || size != kSizes[module])
      return 0;
    for (unsigned i = 1; i < size; ++i) *table[i] = nullptr;
  }
  if (callbacks->GetModuleFunctionTable(0, &table, &size) != 0 ||
      callbacks->GetModuleFunctionTable(7, &table, &size) != 0)
    return 0;
  callbacks->GetModuleFunctionTable(1, &table, &size);
  if (is("marks")) return 1;
  *table[9] = reinterpret_cast<Pointer>(push);
  *table[11] = reinterpret_cast<Pointer>(pop);
  return 1;
}
// NOLINTEND(readability-identifier-naming)
