# The CUDA backend is a plugin, libridge_cuda.so beside the program, which opens it when it is asked
# for. Nothing of CUDA is linked, and no header of it is needed: driver and libraries are opened at
# run time as well.
#
# The plugin holds ridge/backend/cuda and nothing else. Settings, the trace, the pool of threads and
# the registry of ops are those of libridge.so, which program and plugin share: a second copy of them
# would be a second state. The plugin keeps default visibility, so that type information and the
# statics of inline functions are one, too.
function(ridge_add_cuda program)
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

  add_library(ridge_cuda MODULE $<TARGET_OBJECTS:ridge_cuda_objects>)
  set_target_properties(ridge_cuda PROPERTIES PREFIX lib)
  target_link_libraries(ridge_cuda PRIVATE ridge_library fmt::fmt ${CMAKE_DL_LIBS})
  # A program without the plugin of its own build would refuse what lies there.
  add_dependencies(${program} ridge_cuda)
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
