// What `thalweg bench switch` measures, each as gradient packets per second of one core.
#pragma once

#include <cstdint>

#include <thalweg/result.h>

namespace thalweg {

struct SwitchLoad {
  int workers = 8;
  std::uint32_t elements = 64;  // of a packet
  double seconds = 2;           // of each measurement
};

// Packets as the socket layer hands them over (runs of 64 from one worker, in cache) through the
// data plane: decoded, checked, aggregated, sums and parameters written to where they would be sent
// from. Parameter packets, one a sequence, take time and are not counted.
[[nodiscard]] double measure_stage(const SwitchLoad& load);

// What memory allows: the bytes that a sum of arrays beyond cache moves a second, over those of one
// packet's elements (read, and the slot read and written) and header.
[[nodiscard]] double measure_memory_limit(const SwitchLoad& load);

// The same work by the data plane in the kernel: what the system measures of single runs of it,
// each with a packet of its own (BPF_PROG_TEST_RUN). Fails without root.
[[nodiscard]] Result<double> measure_xdp(const SwitchLoad& load);

struct UdpRate {
  double packets_per_s_core = 0;  // of the switch's thread, system calls included
  double packets_per_call = 0;
};
// A switch with one shard and the workers, a server among them, over UDP on loopback.
[[nodiscard]] Result<UdpRate> measure_udp(const SwitchLoad& load);

}  // namespace thalweg
