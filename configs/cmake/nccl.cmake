# CUDA's runtime and NCCL, if they are here: headers and libraries are enough, a GPU is not needed.
# Sets distrun_nccl_missing to what is missing, in words, or to nothing; makes distrun_nccl_libraries,
# to be linked.  Where: the CUDA toolkit's folders, the system's, or those below NCCL_HOME or
# CUDA_HOME (variables of CMake or of the environment).
set(distrun_nccl_missing "")
if(DISTRUN_NCCL STREQUAL "OFF")
  set(distrun_nccl_missing "DISTRUN_NCCL=OFF")
else()
  find_package(CUDAToolkit QUIET)
  set(hints ${NCCL_HOME} $ENV{NCCL_HOME} ${CUDA_HOME} $ENV{CUDA_HOME} /usr/local/cuda)
  find_path(DISTRUN_CUDART_INCLUDE_DIR cuda_runtime_api.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ${hints} PATH_SUFFIXES include)
  find_library(DISTRUN_CUDART_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12
    HINTS ${CUDAToolkit_LIBRARY_DIR} ${hints} PATH_SUFFIXES lib64 lib)
  find_path(DISTRUN_NCCL_INCLUDE_DIR nccl.h
    HINTS ${hints} ${CUDAToolkit_INCLUDE_DIRS} PATH_SUFFIXES include)
  find_library(DISTRUN_NCCL_LIBRARY NAMES nccl libnccl.so.2
    HINTS ${hints} ${CUDAToolkit_LIBRARY_DIR} PATH_SUFFIXES lib64 lib)
  mark_as_advanced(DISTRUN_CUDART_INCLUDE_DIR DISTRUN_CUDART_LIBRARY DISTRUN_NCCL_INCLUDE_DIR
                   DISTRUN_NCCL_LIBRARY)
  foreach(what DISTRUN_CUDART_INCLUDE_DIR/cuda_runtime_api.h DISTRUN_CUDART_LIBRARY/libcudart
          DISTRUN_NCCL_INCLUDE_DIR/nccl.h DISTRUN_NCCL_LIBRARY/libnccl)
    get_filename_component(variable ${what} DIRECTORY)
    get_filename_component(name ${what} NAME)
    if(NOT ${variable})
      string(APPEND distrun_nccl_missing " no ${name}")
    endif()
  endforeach()
  if(NOT distrun_nccl_missing)
    # What older ones lack is asked for at run time; this much is not.
    file(STRINGS ${DISTRUN_NCCL_INCLUDE_DIR}/nccl.h version REGEX "^#define NCCL_(MAJOR|MINOR) ")
    string(REGEX REPLACE "[^0-9]+" ";" version "${version}")
    list(REMOVE_ITEM version "")
    list(JOIN version "." version)
    if(version VERSION_LESS 2.18)
      set(distrun_nccl_missing " NCCL ${version} is older than 2.18")
    else()
      add_library(distrun_nccl_libraries INTERFACE)
      target_include_directories(distrun_nccl_libraries SYSTEM INTERFACE
        ${DISTRUN_NCCL_INCLUDE_DIR} ${DISTRUN_CUDART_INCLUDE_DIR})
      target_link_libraries(distrun_nccl_libraries INTERFACE
        ${DISTRUN_NCCL_LIBRARY} ${DISTRUN_CUDART_LIBRARY})
    endif()
  endif()
  if(distrun_nccl_missing AND DISTRUN_NCCL STREQUAL "ON")
    message(FATAL_ERROR "DISTRUN_NCCL=ON, but:${distrun_nccl_missing}")
  endif()
  if(distrun_nccl_missing)
    message(STATUS "libdistrun_nccl.so is not built:${distrun_nccl_missing}")
  endif()
endif()
