// One ATP worker driven by hand: its options, its packets and the sums that it gets.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "proto/atp/worker.h"

namespace thalweg::proto::atp_by_hand {

using Verdict = AtpPlacement::Verdict;

inline constexpr Duration kOneMs = Duration::milliseconds(1);
inline Time at(std::int64_t ms) { return Time() + kOneMs * ms; }

// Worker 1 of 2, with a window of 8 packets of 4 elements and no congestion control.
inline AtpWorkerOptions two_workers() {
  AtpWorkerOptions options;
  options.job = 3;
  options.index = 1;
  options.fan_in = 2;
  options.elements = 4;
  options.window = 8;
  options.congestion.enabled = false;
  return options;
}

inline AtpWorker started(const AtpWorkerOptions& options, std::int64_t elements,
                         Duration deadline = kOneMs * 30'000) {
  AtpWorker worker(options);
  EXPECT_TRUE(worker.start({elements, deadline, 77}, at(0)).ok());
  return worker;
}

inline wire::AtpHeader parameter(std::uint64_t sequence, std::uint16_t elements = 4) {
  wire::AtpHeader header;
  header.kind = wire::AtpKind::kParameter;
  header.job = 3;
  header.sequence = sequence;
  header.fan_in = 2;
  header.groups = 1;
  header.elements = elements;
  return header;
}

inline std::vector<AtpTransmit> drained(AtpWorker& worker, Time now) {
  std::vector<AtpTransmit> all;
  AtpTransmit transmit;
  while (worker.poll_transmit(now, transmit)) all.push_back(transmit);
  return all;
}

inline std::vector<std::uint64_t> sequences(const std::vector<AtpTransmit>& transmits) {
  std::vector<std::uint64_t> all;
  for (const AtpTransmit& transmit : transmits) all.push_back(transmit.header.sequence);
  return all;
}
using Sequences = std::vector<std::uint64_t>;

}  // namespace thalweg::proto::atp_by_hand
