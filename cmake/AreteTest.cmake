# How test programs and fuzz targets are made and registered.

# What every test program may use, ours and third-party.
add_library(arete_test_base INTERFACE)
target_include_directories(arete_test_base INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(arete_test_base INTERFACE Arete::arete arete_flags GTest::gtest GTest::gmock rapidcheck_gtest
                      rapidcheck fmt::fmt nlohmann_json::nlohmann_json ZLIB::ZLIB)
if(TARGET arete_cli_parts)
  target_link_libraries(arete_test_base INTERFACE arete_cli_parts)
endif()
# Test programs spend their time in the library: what counts for their own code is how soon it is compiled, unless it has
# loops over many elements.
target_compile_options(arete_test_base INTERFACE
  $<$<CONFIG:Release>:-O$<IF:$<BOOL:$<TARGET_PROPERTY:ARETE_HAS_LOOPS>>,1,0>>)
target_compile_definitions(arete_test_base INTERFACE
  ARETE_TEST_DIR="${PROJECT_SOURCE_DIR}/tests" ARETE_VERSION="${PROJECT_VERSION}"
  $<$<BOOL:${ARETE_THREADS_STD}>:ARETE_THREADS_STD=1>)
if(ARETE_SANITIZE)
  target_compile_definitions(arete_test_base INTERFACE ARETE_SANITIZED=1)
endif()

# Google Test and the standard library are half of what an average test is to the compiler.
if(ARETE_PRECOMPILE)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/arete_test_headers.cpp" CONTENT "")
  foreach(headers IN ITEMS arete_test_headers arete_test_headers_of_loops)
    add_library(${headers} OBJECT "${PROJECT_BINARY_DIR}/arete_test_headers.cpp")
    target_link_libraries(${headers} PRIVATE arete_test_base)
    # As programs are compiled.
    set_target_properties(${headers} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${headers} PRIVATE $<$<BOOL:${CMAKE_POSITION_INDEPENDENT_CODE}>:-fPIE>)
    target_precompile_headers(${headers} PRIVATE "${PROJECT_SOURCE_DIR}/tests/support/precompiled.h")
  endforeach()
  set_target_properties(arete_test_headers_of_loops PROPERTIES ARETE_HAS_LOOPS ON)
endif()

# Two test programs share the cores: waiting threads must sleep, not spin. Loops of few elements have several threads all the same.
set(ARETE_TEST_ENVIRONMENT OMP_WAIT_POLICY=passive ARETE_THREAD_WORK=16384 "ARETE_PROGRAM=${PROJECT_BINARY_DIR}/bin/arete")
if(ARETE_SANITIZE MATCHES "thread")
  # libgomp inside oneDNN and OpenBLAS is not instrumented: with one thread it has nothing to report falsely.
  list(APPEND ARETE_TEST_ENVIRONMENT OMP_NUM_THREADS=1
       "TSAN_OPTIONS=halt_on_error=1:allocator_may_return_null=1:second_deadlock_stack=1:suppressions=${PROJECT_SOURCE_DIR}/tools/tsan.supp")
elseif(ARETE_SANITIZE MATCHES "address")
  list(APPEND ARETE_TEST_ENVIRONMENT
       "ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1:strict_string_checks=1:check_initialization_order=1:detect_stack_use_after_return=1"
       "LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/tools/lsan.supp:print_suppressions=0"
       "UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1")
endif()

# arete_test_folder(dir [SHARDS n] [DEVICES] [LOOPS]): tests/<dir>/**/*.cpp become test_<dir>, run as <dir>.1_of_n and so on, with
# the label <dir>. DEVICES: once more as <dir>.reference.1_of_n and so on the reference device (tests/support/), and as
# <dir>.cuda on a GPU, which is skipped with a count where there is none. LOOPS: tests compute much themselves.
function(arete_test_folder dir)
  cmake_parse_arguments(PARSE_ARGV 1 arg "DEVICES;LOOPS" "SHARDS" "")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp")
  if(NOT sources)
    return()
  endif()
  set(target test_${dir})
  add_executable(${target} ${sources})
  target_link_libraries(${target} PRIVATE arete_test_support)
  set_target_properties(${target} PROPERTIES ARETE_HAS_LOOPS ${arg_LOOPS})
  if(ARETE_PRECOMPILE AND arg_LOOPS)
    target_precompile_headers(${target} REUSE_FROM arete_test_headers_of_loops)
  elseif(ARETE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM arete_test_headers)
  endif()
  if(NOT arg_SHARDS)
    set(arg_SHARDS 2)
  endif()
  math(EXPR last "${arg_SHARDS} - 1")
  install(TARGETS ${target} COMPONENT tests EXCLUDE_FROM_ALL DESTINATION ${ARETE_INSTALL_TESTDIR})
  set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../../../${CMAKE_INSTALL_LIBDIR}")
  set(devices cpu)
  if(arg_DEVICES)
    list(APPEND devices reference)
  endif()
  foreach(device IN LISTS devices)
    set(name ${dir})
    set(labels ${dir})
    if(NOT device STREQUAL "cpu")
      set(name ${dir}.${device})
      list(APPEND labels ${device})
    endif()
    foreach(shard RANGE ${last})
      math(EXPR number "${shard} + 1")
      set(test ${name}.${number}_of_${arg_SHARDS})
      add_test(NAME ${test} COMMAND ${target} --gtest_brief=1)
      set_tests_properties(${test} PROPERTIES LABELS "${labels}" TIMEOUT 900
        ENVIRONMENT "${ARETE_TEST_ENVIRONMENT};ARETE_TEST_DEVICE=${device};GTEST_TOTAL_SHARDS=${arg_SHARDS};GTEST_SHARD_INDEX=${shard}")
    endforeach()
  endforeach()
  if(arg_DEVICES AND ARETE_HAVE_CUDA)
    add_dependencies(${target} arete_cuda)
    add_test(NAME ${dir}.cuda COMMAND ${target} --gtest_brief=1)
    set_tests_properties(${dir}.cuda PROPERTIES LABELS "${dir};cuda" TIMEOUT 1800 SKIP_RETURN_CODE 77
      ENVIRONMENT "${ARETE_TEST_ENVIRONMENT};ARETE_TEST_DEVICE=cuda")
  endif()
endfunction()

# arete_fuzz_folder(dir): every tests/<dir>/*.cpp is one target fuzz_<name> (a "_fuzz" in the
# file's name is dropped), run by tests/<dir>/run.sh from the inputs in tests/<dir>/corpus/<name>/.
#
# With clang++ and its fuzzer runtime the targets and the parsers (all of arete/io, and the files that tests/<dir>/sources.txt
# lists) are compiled with coverage and the address and undefined-behaviour sanitizers; what is not a parser comes from
# libarete as it is. The executable's copies of the parsers win over the library's. Without clang++ a small driver of
# our own mutates the inputs blindly.
function(arete_fuzz_folder dir)
  file(GLOB targets CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/${dir}/*.cpp")
  list(FILTER targets EXCLUDE REGEX "/standalone_main\\.cpp$")
  if(NOT targets OR ARETE_SANITIZE MATCHES "thread")
    return()
  endif()
  if(ARETE_SANITIZE OR NOT BUILD_SHARED_LIBS)
    set(engine standalone)
  else()
    _arete_find_fuzzer()
    set(engine ${ARETE_FUZZ_ENGINE})
  endif()

  if(engine STREQUAL "libfuzzer")
    set(flags -std=c++20 -O1 -g1 -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
        -I${PROJECT_SOURCE_DIR} -DARETE_VERSION="${PROJECT_VERSION}")
    file(GLOB parsers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/arete/io/*.cpp")
    if(EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/${dir}/sources.txt")
      file(STRINGS "${dir}/sources.txt" more REGEX "\\.cpp$")
      list(TRANSFORM more PREPEND "${PROJECT_SOURCE_DIR}/")
      list(APPEND parsers ${more})
    endif()
    # Those of a folder as one file, as in the library: headers are most of what each is to the compiler.
    set(folders "")
    foreach(source IN LISTS parsers)
      cmake_path(GET source PARENT_PATH folder)
      cmake_path(GET folder FILENAME folder)
      list(APPEND folders ${folder})
      string(APPEND includes_${folder} "#include \"${source}\"\n")
    endforeach()
    list(REMOVE_DUPLICATES folders)
    set(objects "")
    foreach(folder IN LISTS folders)
      set(together ${CMAKE_CURRENT_BINARY_DIR}/fuzz_objects/${folder}.cpp)
      file(CONFIGURE OUTPUT ${together} CONTENT "${includes_${folder}}")
      _arete_fuzz_object("${together}" "fuzzer-no-link" object)
      list(APPEND objects ${object})
    endforeach()
    set(archive ${CMAKE_CURRENT_BINARY_DIR}/libfuzz_parsers.a)
    add_custom_command(OUTPUT ${archive}
      COMMAND ${CMAKE_COMMAND} -E rm -f ${archive}
      COMMAND ${CMAKE_AR} qc ${archive} ${objects}
      COMMAND ${CMAKE_RANLIB} ${archive}
      DEPENDS ${objects} VERBATIM COMMENT "Archiving the parsers with fuzzer coverage")
  endif()

  set(programs "")
  foreach(source IN LISTS targets)
    cmake_path(GET source STEM name)
    string(REGEX REPLACE "^fuzz_|_fuzz$" "" name "${name}")
    set(target fuzz_${name})
    set(program ${PROJECT_BINARY_DIR}/bin/${target})
    if(engine STREQUAL "libfuzzer")
      _arete_fuzz_object("${source}" "fuzzer-no-link" object)
      add_custom_command(OUTPUT ${program}
        COMMAND ${ARETE_FUZZ_CXX} -fsanitize=fuzzer,address,undefined ${object} ${archive} $<TARGET_FILE:arete>
                -Wl,-rpath,$<TARGET_FILE_DIR:arete> ${ARETE_OPENBLAS_LIBRARY} $<TARGET_FILE:fmt::fmt>
                $<TARGET_FILE:ZLIB::ZLIB> ${ARETE_TURBOJPEG_LIBRARY} ${ARETE_SPNG_LIBRARY} -o ${program}
        DEPENDS ${object} ${archive} VERBATIM COMMENT "Linking bin/${target} (libFuzzer)")
      list(APPEND programs ${program})
    else()
      add_executable(${target} ${source} ${dir}/standalone_main.cpp)
      target_link_libraries(${target} PRIVATE arete_test_base)
    endif()
    add_test(NAME fuzz.${name} COMMAND sh ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/run.sh ${program}
             ${CMAKE_CURRENT_SOURCE_DIR}/${dir}/corpus/${name} ${CMAKE_CURRENT_BINARY_DIR}/${dir}/${name})
    set_tests_properties(fuzz.${name} PROPERTIES LABELS fuzz TIMEOUT 3600 ENVIRONMENT "${ARETE_TEST_ENVIRONMENT}")
  endforeach()
  if(programs)
    add_custom_target(fuzz_targets ALL DEPENDS ${programs})
    add_dependencies(fuzz_targets arete)
  endif()
endfunction()

# Sets ARETE_FUZZ_CXX to a clang++ that links with libFuzzer, and ARETE_FUZZ_ENGINE to libfuzzer or standalone.
function(_arete_find_fuzzer)
  if(DEFINED CACHE{ARETE_FUZZ_ENGINE})
    return()
  endif()
  set(engine standalone)
  find_program(ARETE_FUZZ_CXX NAMES clang++ clang++-19 clang++-18 clang++-17 clang++-16 clang++-15 clang++-14)
  mark_as_advanced(ARETE_FUZZ_CXX)
  if(ARETE_FUZZ_CXX)
    set(probe ${CMAKE_CURRENT_BINARY_DIR}/fuzzer_probe)
    file(WRITE ${probe}.cpp "#include <cstddef>\n#include <cstdint>\n#include <string>\n"
         "extern \"C\" int LLVMFuzzerTestOneInput(const std::uint8_t*, std::size_t) { return 0; }\n")
    execute_process(COMMAND ${ARETE_FUZZ_CXX} -std=c++20 -fsanitize=fuzzer,address,undefined ${probe}.cpp -o ${probe}
                    RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
    if(NOT failed)
      set(engine libfuzzer)
    endif()
  endif()
  message(STATUS "Fuzz targets: ${engine}")
  set(ARETE_FUZZ_ENGINE ${engine} CACHE INTERNAL "libfuzzer or standalone")
endfunction()

# One object compiled by clang++ with the flags of the caller's variable `flags`.
function(_arete_fuzz_object source sanitizer output)
  cmake_path(GET source FILENAME name)
  set(object ${CMAKE_CURRENT_BINARY_DIR}/fuzz_objects/${name}.o)
  file(MAKE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/fuzz_objects)
  add_custom_command(OUTPUT ${object}
    COMMAND ${CMAKE_CXX_COMPILER_LAUNCHER} ${ARETE_FUZZ_CXX} ${flags} -fsanitize=${sanitizer} -MD -MF ${object}.d
            -c ${source} -o ${object}
    DEPENDS ${source} DEPFILE ${object}.d VERBATIM COMMENT "Building ${name} with fuzzer coverage")
  set(${output} ${object} PARENT_SCOPE)
endfunction()
