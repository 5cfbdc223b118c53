# cmake -D PROGRAM=... -D READELF=... -P links_no_libtorch.cmake
# Fails if the program needs libtorch or libc10, by itself or through another library.
execute_process(COMMAND ${READELF} -d ${PROGRAM} OUTPUT_VARIABLE needed COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE loaded COMMAND_ERROR_IS_FATAL ANY)
if(NOT needed MATCHES "libstdc\\+\\+")
  message(FATAL_ERROR "${PROGRAM}: readelf shows no libstdc++:\n${needed}")
endif()
if("${needed}${loaded}" MATCHES "lib(torch|c10)[^] \n]*")
  message(FATAL_ERROR "${PROGRAM} links ${CMAKE_MATCH_0}")
endif()
