// What `thalweg bench transport` measures, as functions that run in the two processes of a
// NetworkPair. Each is called by both with the same arguments; results go to shared memory.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cli/network_pair.h"

namespace thalweg {

// Bytes delivered as fast as possible for a while.
struct RateResult {
  double gbps = 0;           // of payload, at the receiver
  double cpu_seconds = 0;    // of both processes
  double bytes = 0;          // of payload, delivered
  double lost_fraction = 0;  // raw UDP: of what was sent
};

// Times of single tensors: from the call that sends to the last byte in the receiver's memory.
struct TimesResult {
  static constexpr std::size_t kMost = 4096;
  std::uint32_t count = 0;
  std::array<double, kMost> ms = {};
  double arrived_fraction = 0;  // of all packets, on average
  double retransmitted_fraction = 0;
};

struct RateSettings {
  double seconds = 1;
  bool keyed = false;  // DLCP: with a job key
  std::size_t packet_payload = 1400;
  std::size_t tensor_bytes = std::size_t{64} << 20;
};
struct TimesSettings {
  std::uint32_t tensors = 200;
  std::size_t packet_payload = 1400;
  std::size_t tensor_bytes = std::size_t{1} << 20;
  double loss_bound = 0;
  double line_rate_gbps = 1;
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
// Processor seconds a second of an endpoint with one peer and nothing to do.
void measure_idle(const PairProcess& process, double seconds, double& cpu);

}  // namespace thalweg
