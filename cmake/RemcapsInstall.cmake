# cmake --install: headers, libraries, the program, the recipes, and a package other projects find with
# find_package(remcaps).

include(CMakePackageConfigHelpers)

get_property(libraries GLOBAL PROPERTY REMCAPS_LIBRARIES)
install(TARGETS remcaps_options remcaps_torch_options ${libraries} EXPORT remcapsTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS remcaps_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
foreach(header IN LISTS REMCAPS_PUBLIC_HEADERS)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(DIRECTORY models recipes DESTINATION ${CMAKE_INSTALL_DATADIR}/remcaps)

set(config_folder ${CMAKE_INSTALL_LIBDIR}/cmake/remcaps)
install(EXPORT remcapsTargets NAMESPACE remcaps:: DESTINATION ${config_folder})
configure_package_config_file(cmake/remcapsConfig.cmake.in
  ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfig.cmake INSTALL_DESTINATION ${config_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/remcapsConfigVersion.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/remcapsConfigVersion.cmake
        DESTINATION ${config_folder})
