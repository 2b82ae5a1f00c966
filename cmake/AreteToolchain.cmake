# Language level, warnings, sanitizers, compiler cache and linker: everything about how a file is compiled
# that does not depend on which folder it is in.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# libarete.so and libarete.a are made of the same objects.
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Release, Debug or Sanitize" FORCE)
endif()
# -O3 is kept for the files that profit from it (the SIMD kernels): elsewhere it costs build time and size.
string(REPLACE "-O3" "-O2" CMAKE_CXX_FLAGS_RELEASE "${CMAKE_CXX_FLAGS_RELEASE}")
set(CMAKE_CXX_FLAGS_SANITIZE "-O1 -g1 -fno-omit-frame-pointer" CACHE STRING "Flags of the Sanitize build type")
set(CMAKE_EXE_LINKER_FLAGS_SANITIZE "" CACHE STRING "Link flags of the Sanitize build type")
set(CMAKE_SHARED_LINKER_FLAGS_SANITIZE "" CACHE STRING "Link flags of the Sanitize build type")
mark_as_advanced(CMAKE_CXX_FLAGS_SANITIZE CMAKE_EXE_LINKER_FLAGS_SANITIZE CMAKE_SHARED_LINKER_FLAGS_SANITIZE)

# A change inside libarete.so does not ask for new links of the programs that load it.
set(CMAKE_LINK_DEPENDS_NO_SHARED ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")

if(PROJECT_IS_TOP_LEVEL)
  find_program(ARETE_CCACHE ccache)
  if(ARETE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
    # Without this sloppiness ccache passes files with a precompiled header by; nothing here uses __TIME__ and the like.
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_SLOPPINESS=pch_defines,time_macros "${ARETE_CCACHE}")
  endif()
  # Any of these links several times faster than the default; absent, the default does as well.
  find_program(ARETE_MOLD mold)
  find_program(ARETE_LLD ld.lld)
  mark_as_advanced(ARETE_CCACHE ARETE_MOLD ARETE_LLD)
  if(ARETE_MOLD)
    add_link_options(-fuse-ld=mold)
  elseif(ARETE_LLD)
    add_link_options(-fuse-ld=lld)
  endif()
endif()

# DT_RPATH, not DT_RUNPATH: it also serves the libraries that ours load, so that a bundle with the third-party
# libraries beside libarete.so runs from any folder.
add_link_options(-Wl,--disable-new-dtags)
set(ARETE_INSTALL_TESTDIR libexec/arete/tests)

# Flags of our own code only: a project that adds Arete with add_subdirectory keeps its own.
add_library(arete_flags INTERFACE)
# Designated initialisers that leave the rest to its default are meant that way.
target_compile_options(arete_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers $<$<BOOL:${ARETE_WERROR}>:-Werror>)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # Library code of GCC 12 itself sets these off when inlined at -O2 (its bugs 105329, 105562 and 105651).
  target_compile_options(arete_flags INTERFACE -Wno-restrict -Wno-stringop-overflow -Wno-maybe-uninitialized)
  if(CMAKE_UNITY_BUILD)
    # Several sources as one file: their anonymous namespaces look as if a header had them.
    target_compile_options(arete_flags INTERFACE -Wno-subobject-linkage)
  endif()
  if(ARETE_PRECOMPILE)
    # Precompiled, the library's headers are no longer known as a system's, whose own warnings are left out.
    target_compile_options(arete_flags INTERFACE -Wno-array-bounds -Wno-stringop-overread)
  endif()
endif()

# Nothing replaces our functions from outside: calls among them need no table, and may be inlined.
add_compile_options(-fno-semantic-interposition)
add_link_options(-Wl,-Bsymbolic-functions)

if(ARETE_SANITIZE)
  add_compile_options(-fsanitize=${ARETE_SANITIZE})
  add_link_options(-fsanitize=${ARETE_SANITIZE})
  if(ARETE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
