# libnccl-net-thalweg.so, which NCCL loads with NCCL_NET_PLUGIN=thalweg.
#
# It is copied to machines where there is nothing else of Thalweg, so it needs the C library only. It is compiled from
# the sources that it uses, since the layers' libraries would bring all that they link; the linker leaves out functions
# that nothing calls.
function(thalweg_nccl_plugin)
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/nccl/*.cc)
  set(used base/check base/result base/suggest base/units net/io/address net/io/event_loop net/io/small_file net/io/system net/io/tcp net/io/tcp_listener
           net/auth/stream_key net/job/environment net/job/interfaces net/dlcp/endpoint wire/authenticate)
  # CollNet: an ATP node and its job at a switch.
  list(APPEND used base/printable net/auth/atp_key net/atp/admission net/atp/job_message net/atp/leases net/atp/member net/atp/node
              net/atp/packet_train net/atp/server_driver net/atp/switch_client net/atp/switch_list net/atp/worker_driver
              net/dlcp/test_faults net/io/control_connection net/io/test_changes net/io/udp_socket proto/atp/check proto/atp/congestion proto/atp/exponents
              proto/atp/options proto/atp/server proto/atp/tensors proto/atp/worker proto/atp/worker_losses
              wire/atp_packet wire/atp_seal)
  # Highway compiles these once for every SIMD target, each on its own.
  set(kernels tensor/fixed_point tensor/saturating_add tensor/weighted_sum)
  foreach(list used kernels)
    list(TRANSFORM ${list} PREPEND ${CMAKE_SOURCE_DIR}/src/)
    list(TRANSFORM ${list} APPEND .cc)
  endforeach()
  # Instead of Highway's library: which SIMD target the processor has.
  list(APPEND kernels ${CMAKE_SOURCE_DIR}/cmake/highway_targets.cc)
  add_library(thalweg_nccl_plugin MODULE ${sources} ${used} ${kernels})
  thalweg_common(thalweg_nccl_plugin)
  foreach(layer nccl net exec plan topology proto wire tensor trace base)
    target_include_directories(thalweg_nccl_plugin PRIVATE ${CMAKE_BINARY_DIR}/layers/${layer})
  endforeach()
  # Each layer's sources are compiled together: names of one layer may be taken in another.
  set_source_files_properties(${sources} PROPERTIES UNITY_GROUP nccl)
  foreach(source ${used})
    cmake_path(GET source PARENT_PATH layer)
    string(REGEX REPLACE "^.*/src/([a-z]+).*$" "\\1" layer ${layer})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${layer})
  endforeach()
  set_target_properties(thalweg_nccl_plugin PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  set(exports ${CMAKE_SOURCE_DIR}/src/nccl/exports.map)
  set_target_properties(thalweg_nccl_plugin PROPERTIES OUTPUT_NAME nccl-net-thalweg LIBRARY_OUTPUT_DIRECTORY
                                                       ${CMAKE_BINARY_DIR} LINK_DEPENDS ${exports})
  target_compile_definitions(thalweg_nccl_plugin PRIVATE FMT_HEADER_ONLY)
  target_compile_options(thalweg_nccl_plugin PRIVATE -fvisibility=hidden -ffunction-sections -fdata-sections)
  target_link_options(thalweg_nccl_plugin PRIVATE -Wl,--version-script=${exports} -Wl,--gc-sections
                      -Wl,--exclude-libs,ALL -Wl,--as-needed -static-libgcc -static-libstdc++)
  find_library(STATIC_CRYPTO libcrypto.a REQUIRED)
  target_link_libraries(thalweg_nccl_plugin PRIVATE ${STATIC_CRYPTO} Threads::Threads)
endfunction()
