# The Python files of ridge/attach/shim are part of the library: made into C++ when they change.
function(ridge_embed_shim target)
  file(GLOB texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ridge/attach/shim/*.py)
  set(out ${PROJECT_BINARY_DIR}/generated/shim_text.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake)
  list(JOIN texts "|" joined)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${joined}" -DOUT=${out} -P ${script}
    DEPENDS ${texts} ${script} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()
