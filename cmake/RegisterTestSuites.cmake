# Asks a test program for its suites and writes what registers them with CTest: an entry each, since
# every process loads libtorch anew, which takes longer than most tests.
#   cmake -D PROGRAM=... -D FOLDER=... -D LONG=SUITE,... -D OUTPUT=... -P RegisterTestSuites.cmake
# LONG suites get an entry per test; those start first, so that none is left to run alone at the end.
cmake_minimum_required(VERSION 3.25)

# Without the comments, which show types and parameters:
#   Suite.
#     Test
execute_process(COMMAND ${PROGRAM} --gtest_list_tests OUTPUT_VARIABLE listing COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE " +#[^\n]*" "" listing "${listing}")
string(REGEX MATCHALL "[^\n]+" lines "${listing}")
string(REPLACE "," ";" long_suites "${LONG}")

set(script "")
function(register name filter cost)
  # One thread each, since CTest runs as many at a time as there are cores: OpenMP threads that share
  # a core spin against each other. 77: every test was skipped (tests/test_main.cpp).
  string(APPEND script
    "add_test([==[${FOLDER}.${name}]==] [==[${PROGRAM}]==] [==[--gtest_filter=${filter}]==])\n"
    "set_tests_properties([==[${FOLDER}.${name}]==] PROPERTIES LABELS ${FOLDER} TIMEOUT 600 COST ${cost}\n"
    "  SKIP_RETURN_CODE 77 ENVIRONMENT OMP_NUM_THREADS=1)\n")
  set(script "${script}" PARENT_SCOPE)
endfunction()

foreach(line IN LISTS lines)
  if(line MATCHES "^([^ ]+)[.]$")
    set(suite ${CMAKE_MATCH_1})
    if(NOT suite IN_LIST long_suites)
      register(${suite} ${suite}.* 0)
    endif()
  elseif(suite IN_LIST long_suites)
    string(STRIP ${line} test)
    register(${suite}.${test} ${suite}.${test} 1000)
  endif()
endforeach()
file(WRITE ${OUTPUT} "${script}")
