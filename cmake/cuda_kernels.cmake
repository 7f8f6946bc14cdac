# The printer of CUDA kernels: text in, text out, and NVRTC by dlopen. It needs no part of CUDA to be
# built. The texts that printed kernels include are embedded: what lies in device/, and the two
# headers whose arithmetic the CPU's kernels share.
function(ridge_add_cuda_kernels target)
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
            -DNAME=device_headers -DHEADER=ridge/backend/cuda/print_kernel.h
            -DNAMESPACE=ridge::cuda -P ${script}
    DEPENDS ${headers} ${script} VERBATIM)
  set(sources print_kernel print_flat print_rows kernel_text scalar_text index_map nvrtc cubin)
  list(TRANSFORM sources PREPEND ridge/backend/cuda/)
  list(TRANSFORM sources APPEND .cc)
  add_library(${target} STATIC ${sources} ${out})
  target_link_libraries(${target} PUBLIC ridge_library PRIVATE ${CMAKE_DL_LIBS})
  # The plugin compiles all sources of the folder itself.
  if(TARGET ridge_cuda_objects)
    target_sources(ridge_cuda_objects PRIVATE ${out})
  endif()
endfunction()
