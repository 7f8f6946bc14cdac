# Programs other than `ridge` that open the CUDA plugin, and what `./dev bundle` takes along.

# ridge_opens_plugin(PROGRAM): what the plugin calls is linked, whether the program calls it or not.
# `ridge` holds all of the library for that; others would be twice as large. The plugin lies beside
# `ridge`: in a build, others find it by RIDGE_CUDA_PLUGIN.
function(ridge_opens_plugin program)
  set(needs ${PROJECT_BINARY_DIR}/generated/plugin_needs.ld)
  if(NOT TARGET plugin_needs)
    set(script ${PROJECT_SOURCE_DIR}/cmake/plugin_needs.cmake)
    add_custom_command(OUTPUT ${needs}
      COMMAND ${CMAKE_COMMAND} -DNM=${CMAKE_NM} -DPLUGIN=$<TARGET_FILE:ridge_cuda> -DOUT=${needs}
              -P ${script}
      DEPENDS ridge_cuda ${script} VERBATIM)
    add_custom_target(plugin_needs DEPENDS ${needs})
  endif()
  add_dependencies(${program} plugin_needs)
  set_property(TARGET ${program} APPEND PROPERTY LINK_DEPENDS ${needs})
  target_link_options(${program} PRIVATE ${needs})
endfunction()

# ridge_bundle(TARGET...): they lie in bin/ of a bundle, and find their libraries in lib/ beside it.
# By RPATH: a RUNPATH does not hold for the libraries of libraries.
add_custom_target(bundle_programs)
function(ridge_bundle)
  foreach(target ${ARGN})
    set_target_properties(${target} PROPERTIES BUILD_RPATH "$ORIGIN/../lib")
    target_link_options(${target} PRIVATE -Wl,--disable-new-dtags)
    add_dependencies(bundle_programs ${target})
    set_property(GLOBAL APPEND PROPERTY ridge_bundled $<TARGET_FILE:${target}>)
  endforeach()
endfunction()

# To be called last: writes the list that tools/make_bundle reads.
function(ridge_write_bundle_list)
  get_property(files GLOBAL PROPERTY ridge_bundled)
  list(JOIN files "\n" lines)
  file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/bundle_programs.txt CONTENT "${lines}\n")
endfunction()
