# Files under backend/cpu/isa/ hold kernels. `*_avx2.cc` and `*_avx512.cc` are written for one
# instruction set; every other file there is compiled once per set, with RIDGE_ISA naming the
# namespace. They hold raw pointers only: a standard inline function compiled here with AVX-512
# could be the copy that the linker keeps for every machine.
set(ridge_isa_avx2 -mavx2 -mfma -mf16c)
set(ridge_isa_avx512 ${ridge_isa_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl
    -mprefer-vector-width=512)

# ridge_add_kernels(OUT): OUT is the objects of all of them.
function(ridge_add_kernels out)
  set(objects "")
  file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*.cc)
  # AVX512-BF16 besides: callers ask has_bf16_pairs().
  file(GLOB_RECURSE pairs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*_pairs_avx512.cc)
  set_source_files_properties(${pairs} PROPERTIES COMPILE_OPTIONS -mavx512bf16)
  # The same, and AMX: callers ask has_amx().
  file(GLOB_RECURSE tiles CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*_amx_avx512.cc)
  set_source_files_properties(${tiles} PROPERTIES COMPILE_OPTIONS "-mavx512bf16;-mamx-tile;-mamx-bf16;-mamx-int8")
  # Products of bytes by vpdpbusd: callers ask has_i8_form().
  file(GLOB_RECURSE bytes256 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*_vnni_avx2.cc)
  set_source_files_properties(${bytes256} PROPERTIES COMPILE_OPTIONS -mavxvnni)
  file(GLOB_RECURSE bytes512 CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*_vnni_avx512.cc)
  set_source_files_properties(${bytes512} PROPERTIES COMPILE_OPTIONS -mavx512vnni)
  # Tables of bytes by vpermi2b: callers ask cpu_info().vbmi.
  file(GLOB_RECURSE tables CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/*_vbmi_avx512.cc)
  set_source_files_properties(${tables} PROPERTIES COMPILE_OPTIONS -mavx512vbmi)
  # Unrolled register tiles, of intrinsics alone: a check of every one of them would take the
  # compiler minutes and find nothing.
  if(RIDGE_SANITIZE MATCHES "undefined")
    set(unrolled ${kernels})
    list(FILTER unrolled INCLUDE REGEX "/(gemm_tile|gemm_pairs|gemm_amx|gemm_i8|attention_product)[^/]*$")
    set_property(SOURCE ${unrolled} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=undefined)
  endif()
  foreach(isa avx2 avx512)
    set(sources ${kernels})
    foreach(other avx2 avx512)
      if(NOT other STREQUAL isa)
        list(FILTER sources EXCLUDE REGEX "_${other}\\.cc$")
      endif()
    endforeach()
    if(sources)
      add_library(ridge_kernels_${isa} OBJECT ${sources})
      target_link_libraries(ridge_kernels_${isa} PRIVATE ridge_options)
      target_include_directories(ridge_kernels_${isa} PRIVATE ${PROJECT_SOURCE_DIR})
      target_compile_definitions(ridge_kernels_${isa} PRIVATE RIDGE_ISA=${isa})
      target_compile_options(ridge_kernels_${isa} PRIVATE
        ${ridge_isa_${isa}} -fno-math-errno -fno-trapping-math)
      if(NOT RIDGE_SANITIZE)
        target_compile_options(ridge_kernels_${isa} PRIVATE -O3)
      endif()
      list(APPEND objects $<TARGET_OBJECTS:ridge_kernels_${isa}>)
    endif()
  endforeach()
  set(${out} ${objects} PARENT_SCOPE)
endfunction()
