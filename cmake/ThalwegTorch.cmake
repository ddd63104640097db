# thalweg._C, the PyTorch backend: one module that holds our layers, for the PyTorch that is there.
#
# THALWEG_TORCH: the folder of the torch package; by default that of .venv, where there is one.
# THALWEG_PYTHON_OUTPUT: where the module goes; by default into the package in python/.
# THALWEG_TORCHES: folders of further torch packages, for which only `standalone` has modules (tools/wheel).

if(NOT DEFINED THALWEG_TORCH)
  file(GLOB THALWEG_TORCH ${CMAKE_SOURCE_DIR}/.venv/lib/python3*/site-packages/torch)
endif()
if(NOT DEFINED THALWEG_PYTHON_OUTPUT)
  set(THALWEG_PYTHON_OUTPUT ${CMAKE_SOURCE_DIR}/python/thalweg)
endif()

function(thalweg_torch_module)
  if(NOT EXISTS "${THALWEG_TORCH}/lib/libtorch_python.so")
    set(severity STATUS)
    if(THALWEG_TORCH_ONLY)
      set(severity FATAL_ERROR)
    endif()
    message(${severity} "THALWEG_TORCH: no PyTorch at '${THALWEG_TORCH}': the Python module is not built")
    return()
  endif()
  if(NOT Python3_EXECUTABLE)
    set(Python3_EXECUTABLE ${CMAKE_SOURCE_DIR}/.venv/bin/python)
  endif()
  find_package(Python3 REQUIRED COMPONENTS Interpreter Development.Module)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/python/csrc/*.cc)
  add_library(thalweg_torch MODULE ${sources})
  thalweg_for_torch(thalweg_torch ${THALWEG_TORCH})
  set_target_properties(thalweg_torch PROPERTIES OUTPUT_NAME _C LIBRARY_OUTPUT_DIRECTORY ${THALWEG_PYTHON_OUTPUT})
  foreach(folder ${THALWEG_TORCHES})
    thalweg_torch_name(name ${folder})
    add_library(thalweg${name} OBJECT EXCLUDE_FROM_ALL ${sources})
    thalweg_for_torch(thalweg${name} ${folder})
  endforeach()

  # Without PyTorch but for the pybind11 that comes with it: schedules, the client of
  # `thalweg ps`, and the communicator over plain memory.
  thalweg_plain_python_module(sync thalweg_sync)
  thalweg_plain_python_module(ps thalweg_net)
  thalweg_plain_python_module(arrays thalweg_net)
  add_dependencies(thalweg_torch thalweg_python_sync thalweg_python_ps thalweg_python_arrays)
endfunction()

# Sets VARIABLE to the name of the module for the PyTorch at FOLDER, such as _C_torch2_13.
function(thalweg_torch_name variable folder)
  file(STRINGS ${folder}/version.py line REGEX "^__version__ = ")
  if(NOT line MATCHES "'([0-9]+)\\.([0-9]+)")
    message(FATAL_ERROR "${folder}/version.py names no version")
  endif()
  set(${variable} _C_torch${CMAKE_MATCH_1}_${CMAKE_MATCH_2} PARENT_SCOPE)
endfunction()

# The sources of TARGET are compiled for the PyTorch at FOLDER, and TARGET is linked to it.
function(thalweg_for_torch target folder)
  thalweg_common(${target})
  thalweg_torch_name(name ${folder})
  # PyPI's 2.6 has the strings of before GCC 5, and so must all that is linked into the module (tools/wheel).
  set(config ${folder}/share/cmake/Torch/TorchConfig.cmake)
  if(EXISTS ${config} AND NOT CMAKE_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    file(STRINGS ${config} old_strings REGEX "_GLIBCXX_USE_CXX11_ABI=0")
    if(old_strings)
      message(FATAL_ERROR "the PyTorch at ${folder} has the old C++ ABI: `make wheel TORCH=2.6.0` builds for it")
    endif()
  endif()
  # PyTorch's headers cost more than all of our sources: once is enough.
  set_target_properties(
    ${target}
    PROPERTIES UNITY_BUILD ON
               UNITY_BUILD_BATCH_SIZE 0
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               PREFIX ""
               SUFFIX .${Python3_SOABI}.so
               THALWEG_STANDALONE_NAME ${name})
  target_include_directories(${target} PRIVATE ${CMAKE_SOURCE_DIR}/python/csrc)
  target_include_directories(${target} SYSTEM PRIVATE ${folder}/include ${folder}/include/torch/csrc/api/include
                                                      ${Python3_INCLUDE_DIRS})
  # Up to 2.8, modules share pybind11's types only if they name the same compiler's ABI, which is that of PyTorch's.
  file(STRINGS ${folder}/lib/libtorch_python.so internals REGEX "__pybind11_internals_v[0-9]+_gcc_libstdcpp_cxxabi[0-9]+__"
       LIMIT_COUNT 1)
  if(internals MATCHES "(_cxxabi[0-9]+)__")
    target_compile_definitions(${target} PRIVATE PYBIND11_BUILD_ABI="${CMAKE_MATCH_1}")
  endif()
  foreach(library c10 torch_cpu torch_python)
    target_link_libraries(${target} PRIVATE ${folder}/lib/lib${library}.so)
  endforeach()
  target_link_libraries(${target} PRIVATE thalweg_net)
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
  # The process has loaded PyTorch's libraries, or none: no path of this machine's is needed.
  set_target_properties(${target} PROPERTIES SKIP_BUILD_RPATH ON)
endfunction()

# thalweg._NAME from python/csrc_NAME/module.cc over LIBRARY.
function(thalweg_plain_python_module NAME LIBRARY)
  set(target thalweg_python_${NAME})
  add_library(${target} MODULE ${CMAKE_SOURCE_DIR}/python/csrc_${NAME}/module.cc)
  thalweg_common(${target})
  set_target_properties(
    ${target}
    PROPERTIES CXX_VISIBILITY_PRESET hidden
               PREFIX ""
               OUTPUT_NAME _${NAME}
               SUFFIX .${Python3_SOABI}.so
               LIBRARY_OUTPUT_DIRECTORY ${THALWEG_PYTHON_OUTPUT})
  target_include_directories(${target} SYSTEM PRIVATE ${THALWEG_TORCH}/include
                                                      ${Python3_INCLUDE_DIRS})
  target_link_libraries(${target} PRIVATE ${LIBRARY})
  target_link_options(${target} PRIVATE -Wl,--exclude-libs,ALL)
endfunction()
