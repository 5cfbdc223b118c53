# REMCAPS_PUBLIC_HEADERS: what is installed and documented, the headers named below and all they include.

function(remcaps_add_public_header header)
  get_property(known GLOBAL PROPERTY REMCAPS_PUBLIC_HEADERS)
  if(header IN_LIST known)
    return()
  endif()
  set_property(GLOBAL APPEND PROPERTY REMCAPS_PUBLIC_HEADERS ${header})
  set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} includes REGEX "^#include \"remcaps/")
  foreach(line IN LISTS includes)
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" included "${line}")
    remcaps_add_public_header(${included})
  endforeach()
endfunction()

remcaps_add_public_header(remcaps/remcaps.h)
# The runtime has a door of its own.
remcaps_add_public_header(remcaps/c/remcaps.h)
remcaps_add_public_header(remcaps/runtime/tree_dictionary.h)
get_property(REMCAPS_PUBLIC_HEADERS GLOBAL PROPERTY REMCAPS_PUBLIC_HEADERS)
list(JOIN REMCAPS_PUBLIC_HEADERS " " headers)
file(WRITE ${CMAKE_BINARY_DIR}/public_headers.txt "${headers}\n")
