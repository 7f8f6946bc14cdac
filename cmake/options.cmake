# Compiler options of every target, as the interface library ridge_options.
add_library(ridge_options INTERFACE)
target_compile_options(ridge_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Werror
  # Bits must not depend on what the compiler chooses to contract: fma is always written out.
  -ffp-contract=off
  # All code may go into the shared library; nobody replaces a function of it at run time.
  -fPIC -fno-semantic-interposition)
target_link_options(ridge_options INTERFACE -Wl,-Bsymbolic-functions)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # g++ 12 warns of impossible overflows inside its own std::vector and std::string
  # (GCC bugs 105329, 105651).
  target_compile_options(ridge_options INTERFACE
    -Wno-stringop-overflow -Wno-stringop-overread -Wno-restrict -Wno-array-bounds
    -Wno-maybe-uninitialized)
  if(RIDGE_SANITIZE)
    target_compile_options(ridge_options INTERFACE -w)
  elseif(RIDGE_UNITE)
    # A local name may be one of another source, which is included. Builds that are not united judge each
    # source by itself.
    target_compile_options(ridge_options INTERFACE -Wno-shadow -Wno-subobject-linkage)
  endif()
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
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # Inlining what is instrumented took a third of the compilation.
    target_compile_options(ridge_options INTERFACE -mllvm -inline-threshold=25)
  endif()
endif()

# ridge_unite(OUT FOLDER SOURCE...): OUT is what to compile in place of the sources. With RIDGE_UNITE
# that is fewer and longer ones (tools/unite_sources), written to united/FOLDER, which no other call
# names. Names of two files may not meet in them, so they are written anew when a source changes.
function(ridge_unite out folder)
  set(sources ${ARGN})
  if(RIDGE_UNITE)
    set(sources "")
    foreach(source ${ARGN})
      get_filename_component(source ${source} REALPATH)
      list(APPEND sources ${source})
    endforeach()
    set(tool ${PROJECT_SOURCE_DIR}/tools/unite_sources)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tool} ${sources})
    file(WRITE ${PROJECT_BINARY_DIR}/united/sources.txt "")
    foreach(source ${sources})
      file(APPEND ${PROJECT_BINARY_DIR}/united/sources.txt "${source}\n")
    endforeach()
    execute_process(COMMAND python3 -B ${tool} ${PROJECT_BINARY_DIR}/united/${folder}
      INPUT_FILE ${PROJECT_BINARY_DIR}/united/sources.txt
      OUTPUT_VARIABLE sources OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
    string(REPLACE "\n" ";" sources "${sources}")
  endif()
  set(${out} ${sources} PARENT_SCOPE)
endfunction()

# ridge_leave_plain(SOURCE...): sources that a sanitized build by clang does not optimise, whatever their
# target does: it takes longer than what it saves.
function(ridge_leave_plain)
  if(RIDGE_SANITIZE AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set_property(SOURCE ${ARGN} APPEND PROPERTY COMPILE_OPTIONS -O0)
  endif()
endfunction()

# What libFuzzer steers by, for sources that fuzz targets run (-fsanitize=fuzzer-no-link is all of this
# for all sources).
set(ridge_coverage_options
    -fsanitize-coverage=inline-8bit-counters,pc-table,trace-cmp,indirect-calls)

# Paths below the root count as relative, so that all build folders and clones share the cache.
find_program(RIDGE_CCACHE ccache)
if(RIDGE_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
          CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${RIDGE_CCACHE})
endif()

# ridge_precompile(TARGET HEADER...): what most files include took a third to a half of their
# compilation. Others' headers only: those of ours change. A file still includes what it uses;
# clang-tidy reads it without these.
set(ridge_common_headers
    <algorithm> <array> <cmath> <cstdint> <filesystem> <functional> <map> <memory> <mutex> <numeric>
    <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/format.h>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  function(ridge_precompile target)
    target_precompile_headers(${target} PRIVATE ${ridge_common_headers} ${ARGN})
  endfunction()
  return()
endif()

# Clang reads of a precompiled header what a file needs of it, so one serves all. It holds the path of
# the build folder, so ccache is given a sum of what was compiled instead, and all clones share what
# they compile.
set(text "")
foreach(header ${ridge_common_headers} <cstdlib> <fstream> <random> <gtest/gtest.h> <nlohmann/json.hpp>)
  string(APPEND text "#include ${header}\n")
endforeach()
file(CONFIGURE OUTPUT precompiled/common.h CONTENT "${text}")
foreach(form optimised plain)
  set(out precompiled/${form}.pch)
  set(command ${CMAKE_CXX_COMPILER} -std=c++20 -DNDEBUG
      "$<TARGET_PROPERTY:ridge_options,INTERFACE_COMPILE_OPTIONS>" $<$<STREQUAL:${form},plain>:-O0>
      -w -x c++-header precompiled/common.h)
  add_custom_command(OUTPUT ${out}
    COMMAND ${command} -E -P -dD -o ${out}.sum
    COMMAND ${command} -o ${out}
    DEPENDS ${CMAKE_BINARY_DIR}/precompiled/common.h
    COMMAND_EXPAND_LISTS VERBATIM)
  add_custom_target(ridge_precompiled_${form} DEPENDS ${out})
endforeach()
function(ridge_precompile target)
  # Clang takes it only where __OPTIMIZE__ is as it was.
  get_target_property(sources ${target} SOURCES)
  list(GET sources 0 source)
  get_source_file_property(options ${source} COMPILE_OPTIONS)
  set(form optimised)
  if("-O0" IN_LIST options)
    set(form plain)
  endif()
  add_dependencies(${target} ridge_precompiled_${form})
  target_compile_options(${target} PRIVATE "SHELL:-include-pch precompiled/${form}.pch")
endfunction()
