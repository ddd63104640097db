#include "topology/format/nccl_rates.h"

#include <array>
#include <charconv>
#include <utility>

namespace thalweg::topology {

Bandwidth nccl_pci_lane_rate(std::string_view link_speed) {
  constexpr std::array<std::pair<double, std::int64_t>, 6> kMbpsOfGeneration{
      {{2.5, 1500}, {5, 3000}, {8, 6000}, {16, 12000}, {32, 24000}, {64, 48000}}};
  std::int64_t found = 6000;
  double gigatransfers = 0;
  std::from_chars(link_speed.data(), link_speed.data() + link_speed.size(), gigatransfers);
  for (const auto& [speed, mbps] : kMbpsOfGeneration) {
    if (gigatransfers == speed) found = mbps;
  }
  return Bandwidth::bits_per_second(found * 1'000'000);
}

Bandwidth nccl_nvlink_rate(std::int64_t sm) {
  if (sm >= 100) return megabytes_per_second(40'100);
  if (sm >= 90) return megabytes_per_second(20'600);
  if (sm == 86) return megabytes_per_second(12'000);
  if (sm >= 70) return megabytes_per_second(20'000);
  return megabytes_per_second(18'000);
}

Bandwidth nccl_inter_cpu_rate(std::string_view arch, std::string_view vendor, std::int64_t model) {
  if (arch == "ppc64") return megabytes_per_second(32'000);
  if (arch == "arm64") return megabytes_per_second(6'000);
  if (vendor != "GenuineIntel") return megabytes_per_second(16'000);
  if (model >= 0xcf) return megabytes_per_second(40'000);
  if (model >= 0x8f) return megabytes_per_second(22'000);
  if (model >= 0x55) return megabytes_per_second(10'000);
  return megabytes_per_second(6'000);
}

}  // namespace thalweg::topology
