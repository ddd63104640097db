# Layers as targets, with the include direction enforced by the compiler.
#
# Every source writes `#include "base/units.h"`. A layer's own include root is a folder in the
# build tree that holds one link, `base -> src/base`, so a target sees exactly the layers it links.

set(THALWEG_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion
                     -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2
                     -Wimplicit-fallthrough -Wno-psabi)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 warns of overlap in std::string's own code (GCC bug 105651).
  list(APPEND THALWEG_WARNINGS -Wno-restrict)
endif()

function(thalweg_common target)
  target_compile_options(${target} PRIVATE ${THALWEG_WARNINGS})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
endfunction()

# What most sources include costs a third of the time of a build that does not optimize much. The
# release build's layers have none of it, and so prove that every source includes what it uses.
function(thalweg_precompile target)
  target_precompile_headers(
    ${target} PRIVATE <fmt/format.h> <algorithm> <chrono> <functional> <map> <memory> <optional>
    <span> <string> <unordered_map> <variant> <vector> ${ARGN})
endfunction()

function(thalweg_link_root name)
  set(root ${CMAKE_BINARY_DIR}/layers/${name})
  file(MAKE_DIRECTORY ${root})
  file(CREATE_LINK ${CMAKE_SOURCE_DIR}/src/${name} ${root}/${name} SYMBOLIC)
endfunction()

# thalweg_layer(name LAYERS <layers below> USES <libraries>): the library of src/<name>.
function(thalweg_layer name)
  cmake_parse_arguments(ARG "" "" "LAYERS;USES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cc)
  add_library(thalweg_${name} STATIC ${sources})
  thalweg_common(thalweg_${name})
  thalweg_link_root(${name})
  target_include_directories(thalweg_${name} PUBLIC ${CMAKE_BINARY_DIR}/layers/${name})
  list(TRANSFORM ARG_LAYERS PREPEND thalweg_)
  target_link_libraries(thalweg_${name} PUBLIC ${ARG_LAYERS} ${ARG_USES})
  if(THALWEG_PRECOMPILE)
    thalweg_precompile(thalweg_${name})
  endif()
  file(GLOB_RECURSE headers CONFIGURE_DEPENDS RELATIVE ${CMAKE_SOURCE_DIR}/src
       ${CMAKE_SOURCE_DIR}/src/${name}/*.h)
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
