# remcaps_library(folder [TORCH_FREE] SOURCES ... DEPENDS ... [LINK ...])
#   One static library per folder, remcaps::<folder>: what a folder may include is what it links.
#   TORCH_FREE: it neither sees libtorch's headers nor links libtorch; tests/kernels checks that.

# -fPIC everywhere, programs too: one precompiled header can only serve targets with the same flags.
set(REMCAPS_FLAGS -fPIC -Wall -Wextra -Werror)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # False alarms in inlined std::string code, in functions that return references to statics, and in
  # designated initializers that leave members at their defaults, and in optionals.
  list(APPEND REMCAPS_FLAGS -Wno-array-bounds -Wno-stringop-overflow -Wno-dangling-reference
       -Wno-missing-field-initializers -Wno-maybe-uninitialized)
endif()

add_library(remcaps_options INTERFACE)
target_compile_features(remcaps_options INTERFACE cxx_std_20)
target_include_directories(remcaps_options INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
# A libtorch from PyTorch carries an older copy of std::filesystem, which must not come before the
# compiler's own: remove_all would end in a crash.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_link_libraries(remcaps_options INTERFACE stdc++)
endif()
target_link_libraries(remcaps_options INTERFACE Threads::Threads)

# libtorch 2.x brings fmt headers of its own, which come first on the include path and need not match
# the installed libfmt: they are used without it then.
set(REMCAPS_FMT fmt::fmt)
foreach(folder IN LISTS TORCH_INCLUDE_DIRS)
  if(EXISTS ${folder}/fmt/format.h AND NOT folder STREQUAL /usr/include)
    set(REMCAPS_FMT fmt::fmt-header-only)
  endif()
endforeach()
target_link_libraries(remcaps_options INTERFACE ${REMCAPS_FMT})
if(REMCAPS_SANITIZE)
  list(APPEND REMCAPS_FLAGS -Wno-maybe-uninitialized)  # false alarms in instrumented torch headers
  # A test's own code is not watched for undefined behaviour: it would take half as long again to
  # compile. Nor is vptr, an eighth of the compilation, which looks for objects of another class than
  # a cast says: no class here is cast down without being asked.
  target_compile_options(remcaps_options INTERFACE -fsanitize=address -fno-omit-frame-pointer
    "$<$<NOT:$<BOOL:$<TARGET_PROPERTY:REMCAPS_TEST>>>:-fsanitize=undefined;-fno-sanitize=vptr>")
  target_link_options(remcaps_options INTERFACE -fsanitize=address,undefined)
endif()

if(NOT REMCAPS_RUNTIME_ONLY)
  add_library(remcaps_torch_options INTERFACE)
  target_include_directories(remcaps_torch_options SYSTEM INTERFACE ${TORCH_INCLUDE_DIRS})
  target_link_libraries(remcaps_torch_options INTERFACE remcaps_options OpenMP::OpenMP_CXX ${TORCH_LIBRARIES})

  # torch's headers take most of a compilation: they are parsed once, here, for every target.
  file(WRITE ${CMAKE_BINARY_DIR}/pch/empty.cpp "")
  add_library(remcaps_pch OBJECT ${CMAKE_BINARY_DIR}/pch/empty.cpp)
  target_link_libraries(remcaps_pch PRIVATE remcaps_torch_options)
  target_compile_options(remcaps_pch PRIVATE ${REMCAPS_FLAGS})
  target_precompile_headers(remcaps_pch PRIVATE ${PROJECT_SOURCE_DIR}/remcaps/torch/pch.h)
endif()

# A unity build compiles a folder as one; nvcc takes so long for its kernels that they come in batches.
set(REMCAPS_UNITY_BATCH 0)
if(REMCAPS_CUDA)
  set(REMCAPS_UNITY_BATCH 8)
endif()

function(remcaps_compile target)
  cmake_parse_arguments(ARG "TORCH_FREE" "" "" ${ARGN})
  target_compile_options(${target} PRIVATE ${REMCAPS_FLAGS})
  set_target_properties(${target} PROPERTIES
    UNITY_BUILD ${REMCAPS_UNITY} UNITY_BUILD_BATCH_SIZE ${REMCAPS_UNITY_BATCH})
  if(NOT ARG_TORCH_FREE)
    target_precompile_headers(${target} REUSE_FROM remcaps_pch)
  endif()
endfunction()

function(remcaps_library folder)
  cmake_parse_arguments(ARG "TORCH_FREE" "" "SOURCES;DEPENDS;LINK" ${ARGN})
  set(target remcaps_${folder})
  add_library(${target} STATIC ${ARG_SOURCES})
  add_library(remcaps::${folder} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${folder})
  if(ARG_TORCH_FREE)
    target_link_libraries(${target} PUBLIC remcaps_options ${ARG_DEPENDS} PRIVATE ${ARG_LINK})
    remcaps_compile(${target} TORCH_FREE)
    set_property(GLOBAL APPEND PROPERTY REMCAPS_TORCH_FREE_LIBRARIES ${target})
  else()
    target_link_libraries(${target} PUBLIC remcaps_torch_options ${ARG_DEPENDS} PRIVATE ${ARG_LINK})
    remcaps_compile(${target})
  endif()
  set_property(GLOBAL APPEND PROPERTY REMCAPS_LIBRARIES ${target})
endfunction()

# remcaps_test(folder [TORCH_FREE] SOURCES ... DEPENDS ... [LONG ...])
#   One test program per folder, one CTest per suite; of the LONG suites one per test.
#   TORCH_FREE: the program does not link libtorch.
function(remcaps_test folder)
  cmake_parse_arguments(ARG "TORCH_FREE" "" "SOURCES;DEPENDS;LONG" ${ARGN})
  set(target test_${folder})
  add_executable(${target} ${ARG_SOURCES})
  set_target_properties(${target} PROPERTIES REMCAPS_TEST ON)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  if(ARG_TORCH_FREE)
    target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
    remcaps_compile(${target} TORCH_FREE)
  else()
    target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} remcaps_test_main GTest::gtest GTest::gmock)
    remcaps_compile(${target})
  endif()

  set(register ${PROJECT_SOURCE_DIR}/cmake/RegisterTestSuites.cmake)
  set(suites ${CMAKE_CURRENT_BINARY_DIR}/${target}_suites.cmake)
  list(JOIN ARG_LONG "," long)
  add_custom_command(TARGET ${target} POST_BUILD VERBATIM BYPRODUCTS ${suites}
    COMMAND ${CMAKE_COMMAND} -D PROGRAM=$<TARGET_FILE:${target}> -D FOLDER=${folder} -D LONG=${long}
            -D OUTPUT=${suites} -P ${register})
  set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${register})
  if(NOT EXISTS ${suites})
    file(WRITE ${suites} "add_test(${folder}.NOT_BUILT ${target})\n")
  endif()
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${suites})
endfunction()
