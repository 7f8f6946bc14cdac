// The environment variables that a recipe for a third-party program may set without `--trust`.
// Recipes are shared, and a variable such as LD_PRELOAD or LD_AUDIT makes a program run any code,
// so only what `ridge optimize` itself writes is accepted. docs/recipes_pytorch.md holds the same
// table.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace ridge {

/// A library that takes malloc's place.
struct AllocatorLibrary {
  std::string_view name, file;
};
inline constexpr AllocatorLibrary kAllocatorLibraries[] = {
    {"jemalloc", "libjemalloc.so.2"},
    {"tcmalloc", "libtcmalloc_minimal.so.4"},
    {"mimalloc", "libmimalloc.so.2"},
};
/// Folders that only the system's administrator writes to.
inline constexpr std::string_view kLibraryFolders[] = {
    "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"};

inline constexpr std::string_view kPreloadVariable = "LD_PRELOAD";
inline constexpr std::string_view kMallocVariable = "GLIBC_TUNABLES";
inline constexpr std::string_view kCudaAllocatorVariable = "PYTORCH_CUDA_ALLOC_CONF";

// Of what a step frees, malloc gives all above 64 MiB back, and the next one takes a fault for each
// of its pages.
inline constexpr std::string_view kNoMappings = "glibc.malloc.mmap_max=0";
inline constexpr std::string_view kNoTrimming = "glibc.malloc.trim_threshold=1099511627776";
inline constexpr std::string_view kHugePages = "glibc.malloc.hugetlb=1";
inline constexpr std::string_view kGrowingSegments = "expandable_segments:True";

/// One variable and its accepted values.
struct TrustedVariable {
  std::string_view name;
  std::span<const std::string_view> settings;  ///< Whole values, or file names within `folders`.
  std::span<const std::string_view> folders{};
  bool is_list = false;  ///< A value may be several settings with ':' between them, each once.
};
std::span<const TrustedVariable> trusted_variables();

/// UserError that opens with `where` unless the table has the variable with this value.
void check_trusted(const std::string& name, const std::string& value, const std::string& where);

}  // namespace ridge
