# Layers as targets, with the include direction enforced by the compiler.
#
# Every source writes `#include "base/units.h"`. A layer's own include root is a folder in the
# build tree that holds one link, `base -> src/base`, so a target sees exactly the layers it links.

set(THALWEG_WARNINGS -Wall -Wextra -Wpedantic -Werror -Wshadow -Wconversion -Wsign-conversion
                     -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual -Wformat=2
                     -Wimplicit-fallthrough -Wno-psabi)

function(thalweg_common target)
  target_compile_options(${target} PRIVATE ${THALWEG_WARNINGS})
  target_include_directories(${target} PUBLIC ${CMAKE_SOURCE_DIR}/include)
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
  if(NOT sources)
    return()  # BRINGUP
  endif()
  add_library(thalweg_${name} STATIC ${sources})
  thalweg_common(thalweg_${name})
  thalweg_link_root(${name})
  target_include_directories(thalweg_${name} PUBLIC ${CMAKE_BINARY_DIR}/layers/${name})
  list(TRANSFORM ARG_LAYERS PREPEND thalweg_)
  target_link_libraries(thalweg_${name} PUBLIC ${ARG_LAYERS} ${ARG_USES})
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
