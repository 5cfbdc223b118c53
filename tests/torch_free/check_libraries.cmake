# cmake -D PROGRAM=... -P check_libraries.cmake: fails if the program links libtorch or yaml-cpp.
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE libraries COMMAND_ERROR_IS_FATAL ANY)
if(NOT libraries MATCHES "libstdc")
  message(FATAL_ERROR "no list of shared libraries: ${libraries}")
endif()
if(libraries MATCHES "(libtorch|libc10|libyaml)[^\n]*")
  message(FATAL_ERROR "${PROGRAM} links ${CMAKE_MATCH_0}")
endif()
