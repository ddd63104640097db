// What `thalweg bench switch` measures. Each rate is in gradient packets per second of one core.
#pragma once

#include <cstdint>

#include <thalweg/result.h>

namespace thalweg::lab {

struct SwitchLoad {
  int workers = 8;
  std::uint32_t elements = 64;  // in a packet
  double seconds = 2;           // that each measurement takes
};

// The rate of the data plane. It gets packets as the socket layer hands them over: runs of 64 from
// one worker, in cache. It decodes, checks and aggregates them, and writes sums and parameters to
// where they would be sent from. Parameter packets, one per sequence, take time but are not
// counted.
[[nodiscard]] double measure_stage(const SwitchLoad& load);

// The rate that memory allows: the bytes per second that a sum of arrays beyond cache moves,
// divided by the bytes that one packet moves. Those are its elements, which are read while their
// slot is read and written, and its header.
[[nodiscard]] double measure_memory_limit(const SwitchLoad& load);

// The rate of the data plane in the kernel for the same work. The system measures single runs of
// it, each with one packet (BPF_PROG_TEST_RUN). Fails without root.
[[nodiscard]] Result<double> measure_xdp(const SwitchLoad& load);

struct UdpRate {
  double packets_per_s_core = 0;  // per processor second of the thread, system calls included
  double packets_per_call = 0;    // per system call that receives
};
// The rate of a whole switch with one shard, over UDP on loopback. The first worker is the server,
// too.
[[nodiscard]] Result<UdpRate> measure_udp(const SwitchLoad& load);

}  // namespace thalweg::lab
