# Compiler options of every target, as the interface library ridge_options.
add_library(ridge_options INTERFACE)
target_compile_options(ridge_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  # Bits must not depend on what the compiler chooses to contract: fma is always written out.
  -ffp-contract=off)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of impossible overflows inside its own std::vector and std::string
  # (GCC bugs 105329, 105651).
  target_compile_options(ridge_options INTERFACE
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict -Wno-array-bounds
    -Wno-maybe-uninitialized)
endif()

if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # Designated initializers leave out what keeps its default; g++ does not warn of that.
  # libstdc++ 12 calls its own deprecated function in std::stable_sort. g++ is the compiler whose
  # warnings are errors: clang builds the fuzz targets only.
  target_compile_options(ridge_options INTERFACE
    -Wno-missing-designated-field-initializers -Wno-deprecated-declarations -Wno-error)
endif()

if(RIDGE_SANITIZE)
  target_compile_options(ridge_options INTERFACE
    -fsanitize=${RIDGE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g1 -O1)
  target_link_options(ridge_options INTERFACE -fsanitize=${RIDGE_SANITIZE})
endif()

if(RIDGE_FUZZ)
  target_compile_options(ridge_options INTERFACE -fsanitize=fuzzer-no-link)
endif()

# Paths below the root count as relative, so that all build folders and clones share the cache.
find_program(RIDGE_CCACHE ccache)
if(RIDGE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
          CCACHE_SLOPPINESS=pch_defines,time_macros ${RIDGE_CCACHE})
endif()

# ridge_precompile(TARGET HEADER...): what most files include took a third to a half of their
# compilation. Others' headers only: those of ours change. A file still includes what it uses;
# clang-tidy reads it without these. By g++ alone: what clang makes holds paths and times, and ccache
# would find nothing again.
if(NOT CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(CMAKE_DISABLE_PRECOMPILE_HEADERS ON)
endif()
function(ridge_precompile target)
  target_precompile_headers(${target} PRIVATE
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <numeric>
    <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector>
    <fmt/format.h> ${ARGN})
endfunction()
