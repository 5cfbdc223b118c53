# Every library the project uses, and what happens where an optional one is missing.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

# The hot loops are libtorch's and the kernels' own: -O3 would only slow the build down.
set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header is only cached when ccache may ignore the time stamps inside it.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
endif()

find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(Threads REQUIRED)

find_package(PkgConfig)
macro(remcaps_optional name module feature)
  if(PkgConfig_FOUND)
    pkg_check_modules(${name} IMPORTED_TARGET GLOBAL QUIET ${module})
  endif()
  if(${name}_FOUND)
    message(STATUS "${module} ${${name}_VERSION}: ${feature} on")
  else()
    message(STATUS "${module} not found: ${feature} off")
  endif()
endmacro()
remcaps_optional(HIGHWAY libhwy "SIMD kernels")
if(REMCAPS_RUNTIME_ONLY)
  return()
endif()

# Debian's Caffe2 config asks for targets it never uses in a CPU build; its warnings are not ours.
find_package(Torch REQUIRED QUIET)
message(STATUS "libtorch ${Torch_VERSION} (${TORCH_INSTALL_PREFIX})")

find_package(yaml-cpp REQUIRED)
find_package(ZLIB REQUIRED)
# at::parallel_for is a template that runs on one thread in code compiled without OpenMP.
find_package(OpenMP REQUIRED COMPONENTS CXX)

# yaml-cpp renamed its target in 0.8.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp ALIAS yaml-cpp)
endif()

remcaps_optional(MATIO matio "MAT files (SVHN, affNIST)")
remcaps_optional(CURL libcurl "data fetch")
remcaps_optional(LIBARCHIVE libarchive "data fetch of tar and zip archives")
remcaps_optional(LIBCRYPTO libcrypto "checksums of data files")
# libonnx has no pkg-config file.
find_package(Protobuf QUIET)
find_library(ONNX_LIBRARY onnx)
find_library(ONNX_PROTO_LIBRARY onnx_proto)
find_path(ONNX_INCLUDE_DIR onnx/checker.h)
if(Protobuf_FOUND AND ONNX_LIBRARY AND ONNX_PROTO_LIBRARY AND ONNX_INCLUDE_DIR)
  set(ONNX_FOUND TRUE)
  set(ONNX_LIBRARIES ${ONNX_LIBRARY} ${ONNX_PROTO_LIBRARY} ${Protobuf_LIBRARIES})
  message(STATUS "libonnx: export to ONNX on")
else()
  set(ONNX_FOUND FALSE)
  message(STATUS "libonnx not found: export to ONNX off")
endif()

if(REMCAPS_CUDA)
  set(REMCAPS_CUDA_ARCHITECTURES 90 CACHE STRING "GPUs to compile for (90: Hopper)")
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES ${REMCAPS_CUDA_ARCHITECTURES})
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
endif()

# Training in several processes is torch's own c10d. It wants the headers of the Gloo or the NCCL that
# this libtorch was built with: those of another one beside it do not do.
set(GLOO_FOUND FALSE)
foreach(folder IN LISTS TORCH_INCLUDE_DIRS)
  if(EXISTS ${folder}/gloo/context.h AND EXISTS ${folder}/torch/csrc/distributed/c10d/ProcessGroupGloo.hpp)
    set(GLOO_FOUND TRUE)
  endif()
endforeach()
set(NCCL_FOUND FALSE)
if(REMCAPS_CUDA)
  find_path(NCCL_INCLUDE_DIR nccl.h PATHS ${TORCH_INSTALL_PREFIX}/../nvidia/nccl/include)
  if(NCCL_INCLUDE_DIR)
    set(NCCL_FOUND TRUE)
  endif()
endif()
foreach(library GLOO NCCL)
  if(${library}_FOUND)
    message(STATUS "${library}: one run on several processes on")
  endif()
endforeach()
if(NOT GLOO_FOUND AND NOT NCCL_FOUND)
  message(STATUS "Gloo not found: one run on several processes off")
endif()
