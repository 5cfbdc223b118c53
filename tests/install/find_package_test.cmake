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
