# ridge_add_cuda(OUT): compiles the CUDA backend; OUT is its objects. Nothing of CUDA is linked, and no
# header of it is needed: driver and libraries are opened at run time.
function(ridge_add_cuda out)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cuda/*.cc)
  ridge_unite(sources ridge/backend/cuda ${sources})
  add_library(ridge_cuda_objects OBJECT ${sources})
  target_include_directories(ridge_cuda_objects PUBLIC ${PROJECT_SOURCE_DIR})
  if(RIDGE_SANITIZE MATCHES "undefined" AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    set_property(SOURCE ${sources} APPEND PROPERTY COMPILE_OPTIONS -fno-sanitize=function)  # as base/
  endif()
  target_compile_definitions(ridge_cuda_objects PRIVATE RIDGE_VERSION="${PROJECT_VERSION}")
  target_link_libraries(ridge_cuda_objects PUBLIC ridge_options fmt::fmt)
  ridge_embed_device_headers(ridge_cuda_objects)
  ridge_precompile(ridge_cuda_objects)
  set(${out} $<TARGET_OBJECTS:ridge_cuda_objects> PARENT_SCOPE)
endfunction()

# The texts that printed kernels include are embedded: what lies in device/, and the headers whose
# arithmetic the CPU's kernels share.
function(ridge_embed_device_headers target)
  file(GLOB headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/backend/cuda/device/*.h)
  list(APPEND headers
       ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/functions.h
       ${PROJECT_SOURCE_DIR}/ridge/backend/cpu/isa/gelu_table.h
       ${PROJECT_SOURCE_DIR}/ridge/base/philox.h)
  set(out ${PROJECT_BINARY_DIR}/generated/device_headers.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake)
  list(JOIN headers "|" joined)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${joined}" -DROOT=${PROJECT_SOURCE_DIR} -DOUT=${out}
            -DNAME=device_headers -DHEADER=ridge/backend/cuda/print/kernel.h
            -DNAMESPACE=ridge::cuda -P ${script}
    DEPENDS ${headers} ${script} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
