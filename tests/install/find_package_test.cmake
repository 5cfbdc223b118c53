# Variables: BUILD (a built tree), EXAMPLES, GENERATOR, COMPILER, PREFIX_PATH
set(folder ${BUILD}/install-test)
file(REMOVE_RECURSE ${folder})

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    string(JOIN " " command ${ARGV})
    message(FATAL_ERROR "${command}\nended with ${result}:\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${folder}/prefix)
run(${CMAKE_COMMAND} -S ${EXAMPLES} -B ${folder}/build -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} "-DCMAKE_PREFIX_PATH=${folder}/prefix;${PREFIX_PATH}" -D CMAKE_BUILD_TYPE=Release)
run(${CMAKE_COMMAND} --build ${folder}/build --parallel 1)

# docs/api.md says what each installed header is for.
file(READ ${EXAMPLES}/../docs/api.md api)
file(GLOB_RECURSE headers RELATIVE ${folder}/prefix/include ${folder}/prefix/include/*.h)
foreach(header IN LISTS headers)
  string(FIND "${api}" "`${header}`" found)
  if(found EQUAL -1)
    message(FATAL_ERROR "${header} is installed, but docs/api.md does not name it")
  endif()
endforeach()

# In a folder without models/ or recipes/: what is found there by name comes from the prefix.
function(run_in_folder)
  run(${CMAKE_COMMAND} -E chdir ${folder} ${ARGV})
  set(output "${output}" PARENT_SCOPE)
endfunction()

run_in_folder(${folder}/build/example_own_network)
if(NOT output MATCHES "sparsity [1-9]")
  message(FATAL_ERROR "example_own_network pruned nothing:\n${output}")
endif()
run_in_folder(${folder}/build/example_own_network eval runs/own/seed-42)
if(NOT output MATCHES "tiny-capsnet")
  message(FATAL_ERROR "example_own_network did not evaluate its own network:\n${output}")
endif()
run(${folder}/prefix/bin/remcaps info)
file(GLOB_RECURSE shipped RELATIVE ${EXAMPLES}/../models ${EXAMPLES}/../models/*)
foreach(file IN LISTS shipped)
  if(NOT EXISTS ${folder}/prefix/share/remcaps/models/${file})
    message(FATAL_ERROR "models/${file} was not installed")
  endif()
endforeach()
run_in_folder(${folder}/prefix/bin/remcaps
    train fashion-mnist/eff-capsnet --epochs 1 --set dataset.limit_train=256
    --set dataset.limit_test=128 --set dataset.validation=128 --device cpu --out ${folder}/runs)
set(picture ${EXAMPLES}/../docs/images/report.png)  # of another size than the input
foreach(network IN ITEMS runs/seed-42/last.safetensors zoo:fashion-mnist/eff-capsnet)
  run_in_folder(${folder}/build/example_embed ${network} ${picture})
  if(NOT output MATCHES "length 0[.][0-9]+")
    message(FATAL_ERROR "example_embed said nothing:\n${output}")
  endif()
endforeach()

# An exported network without libtorch: remcaps-run, and a C program that pkg-config helps to build.
run_in_folder(${folder}/prefix/bin/remcaps export runs/seed-42 --out small.safetensors)
run_in_folder(${folder}/prefix/bin/remcaps-run small.safetensors ${picture})
if(NOT output MATCHES "report.png  [^ ]+ 0[.][0-9]+")
  message(FATAL_ERROR "remcaps-run said nothing:\n${output}")
endif()
file(GLOB_RECURSE package ${folder}/prefix/*/remcaps-runtime.pc)
cmake_path(GET package PARENT_PATH package)
file(WRITE ${folder}/grey.pgm "P5\n2 2\n255\n@@@@")
run_in_folder(sh -c "cc -std=c99 ${EXAMPLES}/embed.c \
  $(PKG_CONFIG_PATH=${package} pkg-config --define-prefix --cflags --libs remcaps-runtime) -o embed_c")
run_in_folder(${folder}/embed_c small.safetensors grey.pgm)
if(NOT output MATCHES "predicted")
  message(FATAL_ERROR "embed.c said nothing:\n${output}")
endif()

# The same in C++, found by CMake where there is no libtorch.
run(${CMAKE_COMMAND} -S ${EXAMPLES}/runtime -B ${folder}/runtime -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D CMAKE_PREFIX_PATH=${folder}/prefix
    -D CMAKE_DISABLE_FIND_PACKAGE_Torch=ON)
run(${CMAKE_COMMAND} --build ${folder}/runtime --parallel 1)
run_in_folder(${folder}/runtime/embed_runtime small.safetensors grey.pgm)
if(NOT output MATCHES "predicted")
  message(FATAL_ERROR "embed_runtime said nothing:\n${output}")
endif()

# The runtime can also be built where there is no libtorch. Building it would only repeat the build.
run(${CMAKE_COMMAND} -S ${EXAMPLES}/.. -B ${folder}/runtime-only -G ${GENERATOR}
    -D CMAKE_CXX_COMPILER=${COMPILER} -D REMCAPS_RUNTIME_ONLY=ON -D CMAKE_DISABLE_FIND_PACKAGE_Torch=ON
    -D CMAKE_EXPORT_COMPILE_COMMANDS=ON)
file(READ ${folder}/runtime-only/compile_commands.json commands)
if(NOT commands MATCHES "cli/run/main.cpp" OR commands MATCHES "remcaps/(torch|models|training)/")
  message(FATAL_ERROR "REMCAPS_RUNTIME_ONLY builds something else:\n${commands}")
endif()
