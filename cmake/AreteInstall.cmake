# What `cmake --install` lays down: headers, libarete.so and libarete.a, the CMake package, arete.pc, the program.
# Everything finds its neighbours relative to itself, so that an installed tree can be moved.
include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/Arete)

# Where the OpenMP build of OpenBLAS is not the machine's default one, it has to be found by its folder.
set(library_rpath "$ORIGIN")
cmake_path(GET ARETE_OPENBLAS_LIBRARY PARENT_PATH openblas_dir)
if(NOT openblas_dir IN_LIST CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES)
  list(APPEND library_rpath ${openblas_dir})
endif()

if(TARGET arete)
  set_target_properties(arete PROPERTIES INSTALL_RPATH "${library_rpath}")
  install(TARGETS arete EXPORT AreteTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET fragments DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(EXPORT AreteTargets NAMESPACE Arete:: DESTINATION ${package_dir})
  # The archive is not part of "all" in a build that makes the shared library: the install takes it if it was built.
  install(TARGETS arete_static EXPORT AreteStaticTargets OPTIONAL
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET fragments DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
else()
  install(TARGETS arete_static EXPORT AreteStaticTargets
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    FILE_SET HEADERS DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
    FILE_SET fragments DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endif()
install(EXPORT AreteStaticTargets NAMESPACE Arete:: DESTINATION ${package_dir})

configure_package_config_file(cmake/AreteConfig.cmake.in ${PROJECT_BINARY_DIR}/cmake/AreteConfig.cmake
  INSTALL_DESTINATION ${package_dir} NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/AreteConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/AreteConfig.cmake ${PROJECT_BINARY_DIR}/cmake/AreteConfigVersion.cmake
              cmake/AreteStaticDependencies.cmake
        DESTINATION ${package_dir})

if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
else()
  cmake_path(SET pc_dir "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR}${pc_dir}
             OUTPUT_VARIABLE up)
  set(pc_prefix "\${pcfiledir}/${up}")
endif()
set(pc_static_libraries "-ldnnl -llapacke -lopenblas -lsleef -lturbojpeg -lspng -lfmt -lz -ldl")
if(NOT ARETE_THREADS_STD)
  string(APPEND pc_static_libraries " -lgomp")
endif()
configure_file(cmake/arete.pc.in ${PROJECT_BINARY_DIR}/cmake/arete.pc @ONLY)
configure_file(cmake/arete-static.pc.in ${PROJECT_BINARY_DIR}/cmake/arete-static.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cmake/arete-static.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(TARGET arete)
  install(FILES ${PROJECT_BINARY_DIR}/cmake/arete.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endif()

# Beside libarete.so, which looks for it there.
foreach(plugin IN ITEMS arete_cuda arete_gloo)
  if(TARGET ${plugin})
    set_target_properties(${plugin} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS ${plugin} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  endif()
endforeach()

foreach(program IN ITEMS arete_cli arete_bench)
  if(TARGET ${program})
    set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  endif()
endforeach()
if(TARGET arete_cli)
  install(TARGETS arete_cli DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
if(TARGET arete_bench)
  install(TARGETS arete_bench COMPONENT bench EXCLUDE_FROM_ALL DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/arete)
install(PROGRAMS tools/run_bundle_tests.sh COMPONENT tests EXCLUDE_FROM_ALL DESTINATION ${ARETE_INSTALL_TESTDIR}
        RENAME run-tests)
install(FILES bench/peer_torch_cpu.py bench/peer_torch_cuda.py COMPONENT bench EXCLUDE_FROM_ALL DESTINATION bench)
