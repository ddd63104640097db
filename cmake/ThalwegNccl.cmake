# libnccl-net-thalweg.so, which NCCL loads with NCCL_NET_PLUGIN=thalweg.
#
# It is copied to machines where there is nothing else of Thalweg, so it needs the C library only. Nothing is compiled for it
# but two small sources in place of the libraries of fmt and Highway: it is linked from the layers' archives, and the linker
# leaves out the functions that nothing calls. The layers and libraries that only those need are not linked. The sanitizers' presets link
# it as everything else.
function(thalweg_nccl_plugin)
  add_library(thalweg_nccl_plugin MODULE $<TARGET_OBJECTS:thalweg_nccl>)
  set(exports ${CMAKE_SOURCE_DIR}/src/nccl/exports.map)
  set_target_properties(thalweg_nccl_plugin PROPERTIES OUTPUT_NAME nccl-net-thalweg LIBRARY_OUTPUT_DIRECTORY
                                                       ${CMAKE_BINARY_DIR} LINK_DEPENDS ${exports} LINKER_LANGUAGE CXX)
  target_link_options(thalweg_nccl_plugin PRIVATE -Wl,--version-script=${exports})
  if(THALWEG_TESTS_ONLY)
    target_link_libraries(thalweg_nccl_plugin PRIVATE thalweg_net)
    return()
  endif()
  set(replacements ${CMAKE_SOURCE_DIR}/cmake/fmt_functions.cc ${CMAKE_SOURCE_DIR}/cmake/highway_targets.cc)
  target_sources(thalweg_nccl_plugin PRIVATE ${replacements})
  target_link_options(thalweg_nccl_plugin PRIVATE -Wl,--gc-sections -Wl,-z,defs -Wl,--exclude-libs,ALL -Wl,--as-needed
                      -static-libgcc -static-libstdc++)
  target_link_libraries(thalweg_nccl_plugin PRIVATE -Wl,--start-group)
  foreach(layer net proto trace wire tensor base)
    target_link_libraries(thalweg_nccl_plugin PRIVATE $<TARGET_FILE:thalweg_${layer}>)
    add_dependencies(thalweg_nccl_plugin thalweg_${layer})
  endforeach()
  find_library(STATIC_CRYPTO libcrypto.a REQUIRED)
  target_link_libraries(thalweg_nccl_plugin PRIVATE -Wl,--end-group ${STATIC_CRYPTO} Threads::Threads)
  foreach(archive libz libzstd)  # what Debian 13's libcrypto.a needs, and Debian 12's does not
    find_library(STATIC_${archive} ${archive}.a)
    if(STATIC_${archive})
      target_link_libraries(thalweg_nccl_plugin PRIVATE ${STATIC_${archive}})
    endif()
  endforeach()
endfunction()
