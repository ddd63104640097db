# The program and the Python modules as a wheel holds them: linked to archives instead of shared libraries, so that they
# need no Debian package. `cmake --build build/release --target standalone` leaves them in build/standalone.
#
# Nothing is compiled for them: they are linked anew from the objects of the program and the modules. What the layers
# use is an archive for a target that has the property THALWEG_STANDALONE, and the shared library for any other.

set(THALWEG_LIBRARIES ${CMAKE_SOURCE_DIR}/build/libraries CACHE PATH "the archives that python/packaging/libraries builds")
set(THALWEG_STANDALONE_OUTPUT ${CMAKE_SOURCE_DIR}/build/standalone CACHE PATH "where the standalone program and modules go")

# Archives for each library: ours first, and from Debian those that are position-independent, or that only the program,
# and no module, needs.
set(THALWEG_ARCHIVES_fmt::fmt ${THALWEG_LIBRARIES}/libfmt.a)
set(THALWEG_ARCHIVES_yaml-cpp ${THALWEG_LIBRARIES}/libyaml-cpp.a)
set(THALWEG_ARCHIVES_PkgConfig::HWY ${THALWEG_LIBRARIES}/libhwy.a)
set(THALWEG_ARCHIVES_PkgConfig::ISAL ${THALWEG_LIBRARIES}/libisal.a)
set(THALWEG_ARCHIVES_PkgConfig::CLP ${THALWEG_LIBRARIES}/libClp.a ${THALWEG_LIBRARIES}/libCoinUtils.a)
set(THALWEG_ARCHIVES_pugixml::pugixml -l:libpugixml.a)
set(THALWEG_ARCHIVES_OpenSSL::Crypto -l:libcrypto.a)
set(THALWEG_ARCHIVES_PkgConfig::LIBBPF -l:libbpf.a -l:libelf.a -l:libz.a)

# thalweg_or_archives(LIST): every library in LIST that has archives becomes these where the target that is linked
# stands alone.
function(thalweg_or_archives list)
  set(alone "$<BOOL:$<TARGET_PROPERTY:THALWEG_STANDALONE>>")
  set(uses)
  foreach(use ${${list}})
    if(NOT DEFINED THALWEG_ARCHIVES_${use})
      list(APPEND uses ${use})
      continue()
    endif()
    list(APPEND uses "$<$<NOT:${alone}>:${use}>")
    foreach(archive ${THALWEG_ARCHIVES_${use}})
      list(APPEND uses "$<${alone}:${archive}>")
    endforeach()
  endforeach()
  set(${list} "${uses}" PARENT_SCOPE)
endfunction()

# The target NAME_standalone, of the objects and the libraries of NAME.
function(thalweg_stands_alone name)
  set(target ${name}_standalone)
  get_target_property(type ${name} TYPE)
  if(type STREQUAL "EXECUTABLE")
    add_executable(${target} EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  else()
    add_library(${target} MODULE EXCLUDE_FROM_ALL $<TARGET_OBJECTS:${name}>)
  endif()
  foreach(property OUTPUT_NAME PREFIX SUFFIX LINK_LIBRARIES LINK_OPTIONS SKIP_BUILD_RPATH)
    get_target_property(value ${name} ${property})
    if(NOT value STREQUAL "value-NOTFOUND")
      set_target_properties(${target} PROPERTIES ${property} "${value}")
    endif()
  endforeach()
  get_target_property(own_name ${name} THALWEG_STANDALONE_NAME)
  if(own_name)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${own_name})
  endif()
  set_target_properties(
    ${target}
    PROPERTIES THALWEG_STANDALONE ON
               LINKER_LANGUAGE CXX
               RUNTIME_OUTPUT_DIRECTORY ${THALWEG_STANDALONE_OUTPUT}
               LIBRARY_OUTPUT_DIRECTORY ${THALWEG_STANDALONE_OUTPUT})
  # Without symbols, which are half of the size.
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL -Wl,--as-needed -s)
  add_dependencies(standalone ${target})
endfunction()

function(thalweg_standalone)
  add_custom_target(standalone)
  set(others)
  foreach(folder ${THALWEG_TORCHES})
    thalweg_torch_name(name ${folder})
    list(APPEND others thalweg${name})
  endforeach()
  foreach(target thalweg thalweg_torch thalweg_python_sync thalweg_python_ps thalweg_python_arrays ${others})
    if(TARGET ${target})
      thalweg_stands_alone(${target})
    endif()
  endforeach()
  if(TARGET thalweg_standalone)
    set_target_properties(thalweg_standalone PROPERTIES OUTPUT_NAME thalweg)
  endif()
endfunction()
