# libthalweg.so, and what `cmake --install` puts where.
#
# The library is linked from the layers as they are: nothing is compiled for it. It exports what
# src/capi/exports.map names.

include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

function(thalweg_shared_library)
  set(empty ${CMAKE_BINARY_DIR}/generated/shared_library.cc)
  file(CONFIGURE OUTPUT ${empty} CONTENT "")
  add_library(thalweg_shared SHARED ${empty})
  set(exports ${CMAKE_SOURCE_DIR}/src/capi/exports.map)
  # The library holds every source of the C API and of `net`, which has the C++ API, and from the layers below what these need.
  set(whole WHOLE_ARCHIVE,thalweg_capi,thalweg_net)
  set_target_properties(
    thalweg_shared
    PROPERTIES OUTPUT_NAME thalweg
               EXPORT_NAME thalweg
               VERSION ${PROJECT_VERSION}
               # Before version 1 a minor version may change the API.
               SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
               LINK_DEPENDS ${exports}
               LINK_LIBRARY_OVERRIDE ${whole})
  target_link_libraries(thalweg_shared PRIVATE $<LINK_LIBRARY:${whole}>)
  target_link_options(thalweg_shared PRIVATE -Wl,--version-script=${exports} -Wl,--no-undefined -Wl,--as-needed)
endfunction()

function(thalweg_install)
  install(TARGETS thalweg RUNTIME)
  install(TARGETS thalweg_shared EXPORT Thalweg LIBRARY INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
  install(TARGETS thalweg_nccl_plugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(DIRECTORY include/thalweg DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN *.h)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Thalweg)
  install(EXPORT Thalweg NAMESPACE Thalweg:: FILE ThalwegTargets.cmake DESTINATION ${package})
  configure_package_config_file(cmake/ThalwegConfig.cmake.in ${CMAKE_BINARY_DIR}/generated/ThalwegConfig.cmake
                                INSTALL_DESTINATION ${package})
  write_basic_package_version_file(${CMAKE_BINARY_DIR}/generated/ThalwegConfigVersion.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_BINARY_DIR}/generated/ThalwegConfig.cmake ${CMAKE_BINARY_DIR}/generated/ThalwegConfigVersion.cmake
          DESTINATION ${package})

  # The way from the folder of thalweg.pc to the prefix, so that the prefix may be moved.
  file(RELATIVE_PATH to_prefix /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
  configure_file(cmake/thalweg.pc.in ${CMAKE_BINARY_DIR}/generated/thalweg.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/generated/thalweg.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  # What the program finds beside its folder (lab/home.h).
  install(DIRECTORY models scenarios topologies experiments DESTINATION ${CMAKE_INSTALL_DATADIR}/thalweg)
  install(DIRECTORY python/thalweg DESTINATION ${CMAKE_INSTALL_DATADIR}/thalweg/python FILES_MATCHING PATTERN *.py
          PATTERN __pycache__ EXCLUDE)
  install(FILES LICENSE docs/licenses.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
endfunction()
