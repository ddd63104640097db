# Layers as targets, with the include direction enforced by the compiler.
#
# Every source writes `#include "base/units.h"`. A layer's own include root is a folder in the
# build tree that holds one link, `base -> src/base`, so a target sees exactly the layers it links.

set(THALWEG_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion
                     -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2
                     -Wimplicit-fallthrough -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of overlap in std::string's own code (GCC bug 105651).
  # In a unity build it takes all sources but one for headers.
  list(APPEND THALWEG_WARNINGS -Wno-restrict -Wno-subobject-linkage)
endif()

function(thalweg_common target)
  target_compile_options(${target} PRIVATE ${THALWEG_WARNINGS})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
endfunction()

# The layers' own flags: what fuzzers run tells them which branches it took.
if(THALWEG_FUZZ)
  set(THALWEG_LAYER_FLAGS -fsanitize=fuzzer-no-link)
endif()

# Layers that compute little: the sanitizers' presets compile them as fast as possible.
set(THALWEG_LEAN_LAYERS topology tune net capi switchd ps launch)

# One precompiled header for all layers, one for all tools and one for all tests. They are switched off by `make lint`,
# which so proves that every source includes what it uses.
# thalweg_compile(target headers flags <more headers>): the target has these flags, and what they precompile.
set(THALWEG_PRECOMPILED <fmt/format.h> <algorithm> <array> <chrono> <cstdint> <functional> <map> <memory> <optional> <span>
                        <string> <unordered_map> <utility> <variant> <vector>)
function(thalweg_compile target headers flags)
  target_compile_options(${target} PRIVATE ${flags})
  if(NOT THALWEG_PRECOMPILE)
    return()
  endif()
  string(MAKE_C_IDENTIFIER "${headers}${flags}" name)
  if(NOT TARGET thalweg_${name})
    set(source ${CMAKE_BINARY_DIR}/generated/${name}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(thalweg_${name} OBJECT ${source})
    thalweg_common(thalweg_${name})
    target_link_libraries(thalweg_${name} PRIVATE fmt::fmt $<$<STREQUAL:${headers},test_headers>:GTest::gtest>)
    target_compile_options(thalweg_${name} PRIVATE ${flags})
    target_precompile_headers(thalweg_${name} PRIVATE ${THALWEG_PRECOMPILED} ${ARGN})
  endif()
  target_precompile_headers(${target} REUSE_FROM thalweg_${name})
endfunction()

# What must be fast is in the layers: tools are compiled as fast as possible.
function(thalweg_tool target)
  thalweg_compile(${target} tool_headers "${THALWEG_TOOL_FLAGS}" <CLI/CLI.hpp> <nlohmann/json.hpp>)
endfunction()

# Sources of one target compiled a few at a time, which takes less than half as long. Not those of
# `tensor`, which Highway compiles once for every SIMD target.
function(thalweg_unity target)
  if(THALWEG_UNITY AND NOT target STREQUAL "thalweg_tensor")
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${THALWEG_UNITY})
  endif()
endfunction()

function(thalweg_link_root name)
  set(root ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${name} ${root}/${name} SYMBOLIC)
endfunction()

# The libraries of all layers, and the check of their headers.
add_custom_target(layers)

# thalweg_layer(name LAYERS <layers below> USES <libraries> EXCEPT <sources> [TOOL]
#               UNTESTED <pattern>): the library of src/<name>. Sources that match the pattern are in no unit test, so the
# sanitizers' presets leave them out.
function(thalweg_layer name)
  cmake_parse_arguments(ARG "TOOL" "UNTESTED" "LAYERS;USES;EXCEPT" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  list(TRANSFORM ARG_EXCEPT PREPEND ${CMAKE_SOURCE_DIR}/src/${name}/)
  list(REMOVE_ITEM sources ${ARG_EXCEPT})
  if(ARG_UNTESTED AND THALWEG_TESTS_ONLY)
    list(FILTER sources EXCLUDE REGEX "/src/${name}/${ARG_UNTESTED}")
  endif()
  add_library(thalweg_${name} STATIC ${sources})
  thalweg_common(thalweg_${name})
  thalweg_link_root(${name})
  target_include_directories(thalweg_${name} PUBLIC ${CMAKE_BINARY_DIR}/layers/${name})
  list(TRANSFORM ARG_LAYERS PREPEND thalweg_)
  thalweg_or_archives(ARG_USES)
  target_link_libraries(thalweg_${name} PUBLIC ${ARG_LAYERS} ${ARG_USES})
  if(ARG_TOOL)
    thalweg_tool(thalweg_${name})
  else()
    set(flags ${THALWEG_LAYER_FLAGS})
    if(name IN_LIST THALWEG_LEAN_LAYERS)
      list(APPEND flags ${THALWEG_LEAN_FLAGS})
    endif()
    thalweg_compile(thalweg_${name} layer_headers "${flags}")
  endif()
  thalweg_unity(thalweg_${name})
  add_dependencies(layers thalweg_${name})
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src
       ${CMAKE_SOURCE_DIR}/src/${name}/*.h)
  list(FILTER headers EXCLUDE REGEX "\\.bpf\\.h$")  # C for the kernel
  thalweg_check_headers(${name} "${headers}" thalweg_${name})
endfunction()

# Every header compiles alone: in its own source, which includes it first (tests/style proves that),
# or, if it has none, in a source that includes nothing else.
function(thalweg_check_headers name headers library)
  if(NOT THALWEG_CHECK_HEADERS)
    return()
  endif()
  set(sources)  # not the caller's
  foreach(header ${headers})
    string(REGEX REPLACE "\\.h$" ".cc" own ${CMAKE_SOURCE_DIR}/src/${header})
    if(EXISTS ${own})
      continue()
    endif()
    set(source ${CMAKE_BINARY_DIR}/headers/${header}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "#include \"${header}\"\n")
    list(APPEND sources ${source})
  endforeach()
  if(NOT sources)
    return()
  endif()
  add_library(thalweg_${name}_headers OBJECT ${sources})
  thalweg_common(thalweg_${name}_headers)
  target_link_libraries(thalweg_${name}_headers PRIVATE ${library})
  add_dependencies(layers thalweg_${name}_headers)
endfunction()

# thalweg_program(name folder LAYERS … USES …): an executable from src/<folder>.
function(thalweg_program name folder)
  cmake_parse_arguments(ARG "" "" "LAYERS;USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${folder}/*.cc)
  add_executable(${name} ${sources})
  thalweg_common(${name})
  thalweg_link_root(${folder})
  target_include_directories(${name} PRIVATE ${CMAKE_BINARY_DIR}/layers/${folder})
  list(TRANSFORM ARG_LAYERS PREPEND thalweg_)
  target_link_libraries(${name} PRIVATE ${ARG_LAYERS} ${ARG_USES})
endfunction()
