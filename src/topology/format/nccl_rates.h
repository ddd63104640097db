// The rates that NCCL assumes for the parts of a server (https://github.com/NVIDIA/nccl,
// src/graph/topo.h and topo.cc): the usable rate, which is below the nominal rate of the wire.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace thalweg::topology {

constexpr Bandwidth megabytes_per_second(std::int64_t mb) {
  return Bandwidth::bits_per_second(mb * 8'000'000);
}

// The rate of one PCI lane. Kernels write "8 GT/s", "8.0 GT/s" or "8.0 GT/s PCIe". An unknown speed
// counts as 8 GT/s.
Bandwidth nccl_pci_lane_rate(std::string_view link_speed);
// The rate of one NVLink in one direction, by the GPU's compute capability (80 for 8.0).
Bandwidth nccl_nvlink_rate(std::int64_t sm);
// The rate between two CPUs (NUMA nodes) of a server.
Bandwidth nccl_inter_cpu_rate(std::string_view arch, std::string_view vendor, std::int64_t model);

}  // namespace thalweg::topology
