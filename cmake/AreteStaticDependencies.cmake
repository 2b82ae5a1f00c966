# The libraries that a program linked with libarete.a needs, behind one target: Arete::static_dependencies.
# Included by AreteConfig.cmake; sets Arete_FOUND to FALSE, with the reason, when one is missing.
find_dependency(fmt CONFIG)
find_dependency(ZLIB)
if(NOT _arete_threads_std)
  find_dependency(OpenMP COMPONENTS CXX)
endif()

find_library(ARETE_OPENBLAS_LIBRARY openblas PATH_SUFFIXES openblas-openmp openblas-pthread openblas-serial openblas)
find_library(ARETE_LAPACKE_LIBRARY lapacke)
find_library(ARETE_DNNL_LIBRARY dnnl)
find_library(ARETE_SLEEF_LIBRARY sleef)
find_library(ARETE_TURBOJPEG_LIBRARY turbojpeg)
find_library(ARETE_SPNG_LIBRARY spng)
mark_as_advanced(ARETE_OPENBLAS_LIBRARY ARETE_LAPACKE_LIBRARY ARETE_DNNL_LIBRARY ARETE_SLEEF_LIBRARY
  ARETE_TURBOJPEG_LIBRARY ARETE_SPNG_LIBRARY)
foreach(_arete_name IN ITEMS DNNL LAPACKE OPENBLAS SLEEF TURBOJPEG SPNG)
  if(NOT ARETE_${_arete_name}_LIBRARY)
    string(TOLOWER ${_arete_name} _arete_lower)
    set(Arete_FOUND FALSE)
    set(Arete_NOT_FOUND_MESSAGE "Arete's static library needs lib${_arete_lower}, which was not found "
        "(on Debian: libdnnl-dev libopenblas-openmp-dev liblapacke-dev libsleef-dev libturbojpeg0-dev libspng-dev)")
    return()
  endif()
endforeach()

if(NOT TARGET Arete::static_dependencies)
  add_library(Arete::static_dependencies INTERFACE IMPORTED)
  target_link_libraries(Arete::static_dependencies INTERFACE ${ARETE_DNNL_LIBRARY} ${ARETE_LAPACKE_LIBRARY}
                        ${ARETE_OPENBLAS_LIBRARY} ${ARETE_SLEEF_LIBRARY} ${ARETE_TURBOJPEG_LIBRARY}
                        ${ARETE_SPNG_LIBRARY} fmt::fmt ZLIB::ZLIB ${CMAKE_DL_LIBS})
  if(NOT _arete_threads_std)
    target_link_libraries(Arete::static_dependencies INTERFACE OpenMP::OpenMP_CXX)
  endif()
endif()
