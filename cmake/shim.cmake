# Files of FOLDER in Python and JSON are part of the library, as the function NAME of HEADER: made
# into C++ when they change.
function(ridge_embed_python target folder name header namespace)
  file(GLOB texts CONFIGURE_DEPENDS
       ${PROJECT_SOURCE_DIR}/${folder}/*.py ${PROJECT_SOURCE_DIR}/${folder}/*.json)
  set(out ${PROJECT_BINARY_DIR}/generated/${name}.cc)
  set(script ${PROJECT_SOURCE_DIR}/cmake/embed_text.cmake)
  list(JOIN texts "|" joined)
  add_custom_command(OUTPUT ${out}
    COMMAND ${CMAKE_COMMAND} "-DFILES=${joined}" -DOUT=${out} -DNAME=${name} -DHEADER=${header}
            -DNAMESPACE=${namespace} -P ${script}
    DEPENDS ${texts} ${script} VERBATIM)
  target_sources(${target} PRIVATE ${out})
endfunction()

# What is put into third-party programs, what reads the text of them, and what is timed beside Ridge.
function(ridge_embed_shim target)
  ridge_embed_python(${target} ridge/attach/shim shim_files ridge/attach/shim.h ridge::attach)
  ridge_embed_python(${target} ridge/tune/pytorch/patch patch_files ridge/tune/pytorch/recipe_patch.h ridge)
  ridge_embed_python(${target} ridge/tune/onnx/peer peer_files ridge/tune/onnx/runtime_peer.h ridge)
endfunction()
