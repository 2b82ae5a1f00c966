# Third-party libraries. All of them are private: none may appear in a public header, nor in what a program that
# links libarete.so has to know. What the archive needs when a program is linked with it is looked for by
# AreteStaticDependencies.cmake; keep the two in step.

find_package(fmt CONFIG REQUIRED)
find_package(nlohmann_json CONFIG QUIET REQUIRED)
find_package(ZLIB REQUIRED)
if(NOT ARETE_THREADS_STD)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()

# The OpenMP build of OpenBLAS shares its threads with oneDNN and with our own loops; the pthread build would bring
# a second pool, so it is only the second choice.
set(_arete_blas_variants openblas-openmp openblas-pthread openblas-serial openblas)
find_library(ARETE_OPENBLAS_LIBRARY openblas PATH_SUFFIXES ${_arete_blas_variants} REQUIRED)
find_path(ARETE_CBLAS_INCLUDE_DIR cblas.h PATH_SUFFIXES ${_arete_blas_variants} REQUIRED)
find_library(ARETE_LAPACKE_LIBRARY lapacke REQUIRED)
find_path(ARETE_LAPACKE_INCLUDE_DIR lapacke.h REQUIRED)
# Not by oneDNN's own CMake package: Debian's asks for the OpenCL headers, which nothing here needs.
find_library(ARETE_DNNL_LIBRARY dnnl REQUIRED)
find_path(ARETE_DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(ARETE_SLEEF_LIBRARY sleef REQUIRED)
find_path(ARETE_SLEEF_INCLUDE_DIR sleef.h REQUIRED)
find_library(ARETE_TURBOJPEG_LIBRARY turbojpeg REQUIRED)
find_path(ARETE_TURBOJPEG_INCLUDE_DIR turbojpeg.h REQUIRED)
find_library(ARETE_SPNG_LIBRARY spng REQUIRED)
find_path(ARETE_SPNG_INCLUDE_DIR spng.h REQUIRED)
# Used as a header (XXH_INLINE_ALL): as a library it would be one more to ship.
find_path(ARETE_XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
foreach(_arete_name IN ITEMS OPENBLAS LAPACKE DNNL SLEEF TURBOJPEG SPNG CBLAS XXHASH)
  mark_as_advanced(ARETE_${_arete_name}_LIBRARY ARETE_${_arete_name}_INCLUDE_DIR)
endforeach()

# What every object of the library is compiled with. Include directories only: the libraries themselves are linked
# once, into libarete.
add_library(arete_thirdparty INTERFACE)
target_include_directories(arete_thirdparty SYSTEM INTERFACE
  ${ARETE_CBLAS_INCLUDE_DIR} ${ARETE_LAPACKE_INCLUDE_DIR} ${ARETE_DNNL_INCLUDE_DIR} ${ARETE_SLEEF_INCLUDE_DIR}
  ${ARETE_XXHASH_INCLUDE_DIR} ${ARETE_TURBOJPEG_INCLUDE_DIR} ${ARETE_SPNG_INCLUDE_DIR}
  $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:nlohmann_json::nlohmann_json,INTERFACE_INCLUDE_DIRECTORIES>
  $<TARGET_PROPERTY:ZLIB::ZLIB,INTERFACE_INCLUDE_DIRECTORIES>)
if(ARETE_THREADS_STD)
  target_compile_definitions(arete_thirdparty INTERFACE ARETE_THREADS_STD=1)
else()
  target_compile_options(arete_thirdparty INTERFACE ${OpenMP_CXX_FLAGS})
endif()

set(ARETE_LINK_LIBRARIES ${ARETE_DNNL_LIBRARY} ${ARETE_LAPACKE_LIBRARY} ${ARETE_OPENBLAS_LIBRARY}
                         ${ARETE_SLEEF_LIBRARY} ${ARETE_TURBOJPEG_LIBRARY} ${ARETE_SPNG_LIBRARY}
                         fmt::fmt ZLIB::ZLIB ${CMAKE_DL_LIBS})
if(NOT ARETE_THREADS_STD)
  list(APPEND ARETE_LINK_LIBRARIES OpenMP::OpenMP_CXX)
endif()

# CUDA: headers to build against; nothing of it is linked. nvcc compiles the one part that NVRTC would be too slow for.
set(ARETE_HAVE_CUDA OFF)
if(ARETE_CUDA AND NOT ARETE_SANITIZE MATCHES "thread" AND BUILD_SHARED_LIBS)
  if(ARETE_CUDA STREQUAL "AUTO")
    find_package(CUDAToolkit QUIET)
  else()
    find_package(CUDAToolkit REQUIRED)
  endif()
  if(CUDAToolkit_FOUND)
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    find_package(Threads REQUIRED)
    set(ARETE_HAVE_CUDA ON)
    message(STATUS "CUDA backend: CUDA ${CUDAToolkit_VERSION}")
  else()
    message(STATUS "CUDA backend: left out, since there is no CUDA toolkit here")
  endif()
endif()

# Gloo moves tensors of the CPU between processes; libarete_gloo.so alone is linked with it.
set(ARETE_HAVE_GLOO OFF)
if(BUILD_SHARED_LIBS)
  find_package(Gloo CONFIG QUIET)
  if(TARGET gloo)
    find_package(Threads REQUIRED)
    set(ARETE_HAVE_GLOO ON)
    message(STATUS "Gloo: found")
  else()
    message(STATUS "Gloo: left out, since it is not here (on Debian: libgloo-dev)")
  endif()
endif()
