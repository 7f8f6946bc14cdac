# What `./dev bundle` takes along.

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
