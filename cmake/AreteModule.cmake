# One folder under arete/ is one OBJECT library; all of them together make libarete.

define_property(GLOBAL PROPERTY ARETE_MODULE_TARGETS BRIEF_DOCS "Targets whose objects make libarete")
define_property(GLOBAL PROPERTY ARETE_PUBLIC_HEADERS BRIEF_DOCS "Headers that users include")
define_property(GLOBAL PROPERTY ARETE_HEADER_FRAGMENTS BRIEF_DOCS "Installed headers that only public ones include")

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(ARETE_SIMD_TARGETS base avx2 avx512)
  set(ARETE_SIMD_FLAGS_base -march=x86-64-v2)
  set(ARETE_SIMD_FLAGS_avx2 -mavx2 -mfma -mf16c)
  set(ARETE_SIMD_FLAGS_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
else()
  set(ARETE_SIMD_TARGETS base)
  set(ARETE_SIMD_FLAGS_base "")
endif()

# Sorts headers by their names. public: users include them, and each compiles alone. fragments: installed because public
# headers include them, but nobody else's business (detail/, *.inl.h, *.inc.h). *_internal.h stay here.
function(arete_sort_headers headers public fragments)
  list(FILTER headers EXCLUDE REGEX "_internal\\.h$")
  set(rest ${headers})
  list(FILTER headers EXCLUDE REGEX "/detail/|\\.in[lc]\\.h$")
  list(FILTER rest INCLUDE REGEX "/detail/|\\.in[lc]\\.h$")
  set(${public} ${headers} PARENT_SCOPE)
  set(${fragments} ${rest} PARENT_SCOPE)
endfunction()

# Parsing the standard library takes a third of the time of an average file.
if(ARETE_PRECOMPILE)
  file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/arete_standard_library.cpp" CONTENT "")
  add_library(arete_standard_library OBJECT "${PROJECT_BINARY_DIR}/arete_standard_library.cpp")
  target_link_libraries(arete_standard_library PRIVATE arete_flags arete_thirdparty)
  target_precompile_headers(arete_standard_library PRIVATE "${PROJECT_SOURCE_DIR}/cmake/standard_library.h")
endif()

function(_arete_configure_objects target)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
  target_link_libraries(${target} PRIVATE $<BUILD_INTERFACE:arete_flags> $<BUILD_INTERFACE:arete_thirdparty>)
  target_compile_definitions(${target} PRIVATE ARETE_VERSION="${PROJECT_VERSION}")
  set_property(GLOBAL APPEND PROPERTY ARETE_MODULE_TARGETS ${target})
endfunction()

# arete_module(name [DEPENDS module...] [PRIVATE_HEADERS])
#
# Makes arete_<name> of the *.cpp in the current folder and below. Sources and headers are found by themselves, so a
# new file needs no edit here; a folder without sources is fine. PRIVATE_HEADERS: no header of the folder is installed.
# Files named *.simd.cpp are compiled once for each instruction set, with ARETE_SIMD_TARGET naming it.
function(arete_module name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "PRIVATE_HEADERS" "" "DEPENDS")
  set(target arete_${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.cpp")
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/*.h")
  set(simd_sources ${sources})
  list(FILTER simd_sources INCLUDE REGEX "\\.simd\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "\\.simd\\.cpp$")

  set(dependencies ${arg_DEPENDS})
  list(TRANSFORM dependencies PREPEND arete_)
  if(sources)
    add_library(${target} OBJECT ${sources} ${headers})
    _arete_configure_objects(${target})
    if(ARETE_PRECOMPILE)
      target_precompile_headers(${target} REUSE_FROM arete_standard_library)
    endif()
    target_link_libraries(${target} PUBLIC ${dependencies})
    set(scope PUBLIC)
  else()
    add_library(${target} INTERFACE)
    target_include_directories(${target} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
    target_link_libraries(${target} INTERFACE ${dependencies})
    set(scope INTERFACE)
  endif()
  if(NOT arg_PRIVATE_HEADERS)
    arete_sort_headers("${headers}" public fragments)
    target_sources(${target} ${scope} FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR} FILES ${public})
    set_property(GLOBAL APPEND PROPERTY ARETE_PUBLIC_HEADERS ${public})
    set_property(GLOBAL APPEND PROPERTY ARETE_HEADER_FRAGMENTS ${fragments})
  endif()

  if(simd_sources)
    foreach(simd IN LISTS ARETE_SIMD_TARGETS)
      add_library(${target}_${simd} OBJECT ${simd_sources})
      # A few files that take long: together they would keep one processor.
      set_target_properties(${target}_${simd} PROPERTIES UNITY_BUILD OFF)
      _arete_configure_objects(${target}_${simd})
      target_compile_definitions(${target}_${simd} PRIVATE ARETE_SIMD_TARGET=${simd})
      # Contraction into fused multiply-add is wanted here; what would change results (-ffast-math) is not.
      target_compile_options(${target}_${simd} PRIVATE $<$<CONFIG:Release>:-O3> -fno-math-errno -fno-trapping-math
                             -ffp-contract=fast ${ARETE_SIMD_FLAGS_${simd}})
      if(ARETE_PRECOMPILE)
        target_precompile_headers(${target}_${simd} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/standard_library.h")
      endif()
    endforeach()
  endif()
endfunction()
