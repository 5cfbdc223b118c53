# cmake --install: headers, libraries, the programs, the recipes, and a package other projects find with
# find_package(remcaps), or find_package(remcaps COMPONENTS runtime) without libtorch.

include(CMakePackageConfigHelpers)

# The runtime and what it stands on are an export of their own: it is found without libtorch.
set(runtime remcaps_options remcaps_base remcaps_tensors remcaps_parse_tree remcaps_kernels remcaps_runtime)
if(REMCAPS_CUDA)
  list(APPEND runtime remcaps_kernels_cuda)
endif()
install(TARGETS ${runtime} EXPORT remcapsRuntimeTargets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS remcaps_run_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# For programs that do not use CMake. The prefix is that of the installation: pkg-config is told another
# one with --define-prefix.
if(HIGHWAY_FOUND)
  set(REMCAPS_RUNTIME_LIBS -lhwy)
endif()
configure_file(cmake/remcaps-runtime.pc.in ${CMAKE_CURRENT_BINARY_DIR}/remcaps-runtime.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/remcaps-runtime.pc
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
foreach(header IN LISTS REMCAPS_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/remcaps)
if(NOT REMCAPS_RUNTIME_ONLY)
  get_property(libraries GLOBAL PROPERTY REMCAPS_LIBRARIES)
  list(REMOVE_ITEM libraries ${runtime})
  install(TARGETS remcaps_torch_options ${libraries} EXPORT remcapsTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(TARGETS remcaps_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(DIRECTORY models recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/remcaps)
  install(EXPORT remcapsTargets NAMESPACE remcaps:: DESTINATION ${config_folder})
endif()
install(EXPORT remcapsRuntimeTargets NAMESPACE remcaps:: DESTINATION ${config_folder})
configure_package_config_file(cmake/remcapsConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/remcapsConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfigVersion.cmake
        DESTINATION ${config_folder})
