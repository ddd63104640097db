# thalweg._C, the PyTorch backend: one module that holds our layers, for the PyTorch that is there.
#
# THALWEG_TORCH: the folder of the torch package; by default that of .venv, where there is one.
# THALWEG_PYTHON_OUTPUT: where the module goes; by default into the package in python/.

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
  thalweg_common(thalweg_torch)
  # PyTorch's headers cost more than all of our sources: once is enough.
  set_target_properties(
    thalweg_torch
    PROPERTIES UNITY_BUILD ON
               UNITY_BUILD_BATCH_SIZE 0
               CXX_VISIBILITY_PRESET hidden
               VISIBILITY_INLINES_HIDDEN ON
               PREFIX ""
               OUTPUT_NAME _C
               SUFFIX .${Python3_SOABI}.so
               LIBRARY_OUTPUT_DIRECTORY ${THALWEG_PYTHON_OUTPUT})
  target_include_directories(thalweg_torch PRIVATE ${CMAKE_SOURCE_DIR}/python/csrc)
  target_include_directories(
    thalweg_torch SYSTEM PRIVATE ${THALWEG_TORCH}/include
                                 ${THALWEG_TORCH}/include/torch/csrc/api/include
                                 ${Python3_INCLUDE_DIRS})
  target_compile_definitions(thalweg_torch PRIVATE _GLIBCXX_USE_CXX11_ABI=1)
  foreach(library c10 torch_cpu torch_python)
    target_link_libraries(thalweg_torch PRIVATE ${THALWEG_TORCH}/lib/lib${library}.so)
  endforeach()
  target_link_libraries(thalweg_torch PRIVATE thalweg_net)
  target_link_options(thalweg_torch PRIVATE -Wl,--exclude-libs,ALL)
  # The process has loaded PyTorch's libraries, or none: no path of this machine's is needed.
  set_target_properties(thalweg_torch PROPERTIES SKIP_BUILD_RPATH ON)

  # Without PyTorch but for the pybind11 that comes with it: schedules, the client of
  # `thalweg ps`, and the communicator over plain memory.
  thalweg_plain_python_module(sync thalweg_sync)
  thalweg_plain_python_module(ps thalweg_net)
  thalweg_plain_python_module(arrays thalweg_net)
  add_dependencies(thalweg_torch thalweg_python_sync thalweg_python_ps thalweg_python_arrays)
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
