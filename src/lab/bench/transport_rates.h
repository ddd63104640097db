// What `thalweg bench transport` measures. The functions run in the two processes of
// run_network_pair(): both processes call each function with the same arguments, and `result` is in
// memory that they share.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "lab/emulation/network_pair.h"

namespace thalweg::lab {

// A measurement of bytes that were delivered as fast as possible for a while.
struct RateResult {
  double gbps = 0;           // 1e9 bits of payload per second, at the receiver
  double cpu_seconds = 0;    // of both processes
  double bytes = 0;          // of payload that was delivered
  double lost_fraction = 0;  // of the bytes that were sent; raw UDP only
};

// Times of single tensors, from the call that sends to the last byte in the receiver's memory.
struct TimesResult {
  static constexpr std::size_t kMost = 4096;
  std::uint32_t count = 0;
  std::array<double, kMost> ms = {};
  double arrived_fraction = 0;        // of the packets, on average
  double retransmitted_fraction = 0;  // retransmissions per packet, on average
};

struct RateSettings {
  double seconds = 1;
  bool keyed = false;  // with a job key; DLCP only
  std::size_t packet_payload = 1400;
  std::size_t tensor_bytes = std::size_t{64} << 20;
};
struct TimesSettings {
  std::uint32_t tensors = 200;
  std::size_t packet_payload = 1400;
  std::size_t tensor_bytes = std::size_t{1} << 20;
  double loss_bound = 0;      // DLCP only
  double line_rate_gbps = 1;  // DLCP only
};

void measure_raw_udp_rate(const PairProcess& process, const RateSettings& settings,
                          RateResult& result);
void measure_tcp_rate(const PairProcess& process, const RateSettings& settings, RateResult& result);
void measure_dlcp_rate(const PairProcess& process, const RateSettings& settings,
                       RateResult& result);
void measure_tcp_times(const PairProcess& process, const TimesSettings& settings,
                       TimesResult& result);
void measure_dlcp_times(const PairProcess& process, const TimesSettings& settings,
                        TimesResult& result);
// Sets `cpu` to the processor seconds per second of a DLCP endpoint with one peer and nothing to
// do.
void measure_idle(const PairProcess& process, double seconds, double& cpu);

}  // namespace thalweg::lab
