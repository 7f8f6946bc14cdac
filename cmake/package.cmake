# libridge.so, and what is installed: it, the program over it, the header, a CMake package, a file of
# pkg-config and the licence. `./dev package` makes a .deb of that.

# The program of an installation finds the library in lib/ beside bin/, wherever they lie.
function(ridge_add_package program)
  set(map ${PROJECT_SOURCE_DIR}/cmake/libridge.map)
  # The objects of ridge_library, with the symbols of ridge/ridge.h alone. Before 1.0 another minor
  # version may have another interface.
  add_library(libridge SHARED $<TARGET_OBJECTS:ridge_library> ${ridge_objects})
  set_target_properties(libridge PROPERTIES
    OUTPUT_NAME ridge LINKER_LANGUAGE CXX LINK_DEPENDS ${map}
    VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_link_libraries(libridge PRIVATE
    ridge_options fmt::fmt Threads::Threads ${ridge_dependencies} ${CMAKE_DL_LIBS})
  target_link_options(libridge PRIVATE -Wl,--version-script=${map} -Wl,-z,defs)
  target_link_libraries(${program} PRIVATE ridge_options libridge)
  # The same in a build: a path that CMake replaces when it installs ends in an empty one, which is the
  # current folder.
  set_target_properties(${program} PROPERTIES
    BUILD_WITH_INSTALL_RPATH YES INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN")

  install(TARGETS ${program} libridge
    RUNTIME DESTINATION bin COMPONENT runtime
    LIBRARY DESTINATION lib COMPONENT runtime NAMELINK_COMPONENT development)
  install(FILES LICENSE DESTINATION share/doc/ridge COMPONENT runtime RENAME copyright)
  install(FILES ridge/ridge.h DESTINATION include/ridge COMPONENT development)
  # The faces of ATen's graphs and generator are for the package of Python alone, which is built with the library.
  install(DIRECTORY ridge/api DESTINATION include/ridge COMPONENT development FILES_MATCHING PATTERN *.h
    PATTERN aten_*.h EXCLUDE)

  set(generated ${PROJECT_BINARY_DIR}/generated)
  get_target_property(soversion libridge SOVERSION)
  configure_file(cmake/ridge-config.cmake.in ${generated}/ridge-config.cmake @ONLY)
  configure_file(cmake/ridge.pc.in ${generated}/ridge.pc @ONLY)
  include(CMakePackageConfigHelpers)
  write_basic_package_version_file(${generated}/ridge-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${generated}/ridge-config.cmake ${generated}/ridge-config-version.cmake
    DESTINATION lib/cmake/ridge COMPONENT development)
  install(FILES ${generated}/ridge.pc DESTINATION lib/pkgconfig COMPONENT development)

  set(CPACK_GENERATOR DEB)
  set(CPACK_VERBATIM_VARIABLES YES)
  set(CPACK_PACKAGE_NAME ridge)
  set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains, diagnoses and optimizes AI workloads, and runs models")
  set(CPACK_PACKAGE_CONTACT "the maintainers of Ridge")
  set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
  set(CPACK_STRIP_FILES YES)
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS YES)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR})
  set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS YES)
  include(CPack)
endfunction()
