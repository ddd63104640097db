// Configuration of ATP's two ends. Plain data, checked once by validate().
#pragma once

#include <cstdint>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "wire/atp_packet.h"

namespace thalweg {

// Rate control of a worker (section 5.4): additive increase, multiplicative decrease, slow start.
struct AtpCongestionOptions {
  bool enabled = true;                 // off: the window stays at AtpWorkerOptions::window packets
  std::uint32_t initial_packets = 50;  // the window at the start; above 0
  // Slow start: every parameter packet adds so much. After it: every window of them does. 1 byte to
  // 1 TiB, and so the threshold.
  Bytes step = Bytes(1500);
  Bytes threshold = Bytes(1 << 20);  // where slow start ends, until the first congestion
  // Slow start ends, and a window of initial_packets or more does not grow, while sums typically
  // take so much longer than the least they took: packets stand in queues that nobody marks or
  // overruns, and sums stand in them behind gradients. Above 0.
  Duration queue = Duration::milliseconds(5);
};

// When a worker takes a packet for lost.
struct AtpRecoveryOptions {
  // So many parameter packets of later sequences in a row, for each server: the oldest is lost. 0:
  // only timeouts.
  std::uint32_t out_of_sequence = 3;
  // Not only the oldest: whatever has no sum when one comes from its server that is of
  // `out_of_sequence` of that server's sequences later or more; and what was sent again, when one
  // comes that was sent a flight later. Off, as in the paper, losses of one window are found one by
  // one, and once the window stands still only by timeouts.
  bool all_holes = true;
  // With all_holes, when all has been sent: a sum of a server's last sequence is enough. Off where
  // the sums of one server overtake each other.
  bool tail_holes = true;
  // The timeout is so many times what it typically takes from a gradient to its parameter, within
  // these limits; every retransmission of a sequence doubles it for that sequence. At least 1.
  std::int64_t factor = 4;
  // The timeout before the first parameter, and the least one for what is sent after a pause: how
  // much later than this worker another may begin.
  Duration initial = Duration::milliseconds(20);
  Duration least = Duration::milliseconds(1);
  Duration most = Duration::milliseconds(500);
};

// One worker of a job.
struct AtpWorkerOptions {
  std::uint32_t job = 0;
  std::uint8_t group = 0;        // the worker's group, below group_count
  std::uint8_t index = 0;        // its place there, below fan_in
  std::uint8_t fan_in = 1;       // workers of the group, 1 to 32
  std::uint8_t group_count = 1;  // 1 to 32
  // The first switch on the way that may aggregate: kAtpFirstLevel, as a rule; kAtpSecondLevel for
  // a worker that is a group of its own beside the server's switch; kAtpServerLevel for none.
  std::uint8_t level = kAtpFirstLevel;
  std::uint32_t servers = 1;    // sequence s goes to server s mod servers; above 0
  std::uint32_t elements = 64;  // of a packet, 1 to kAtpMostElements; all of a job say the same
  bool keyed = false;           // packets carry a seal, which the driver fills in
  // The most sequences in flight, a power of two up to kMostWindow; all of a job say the same.
  std::uint32_t window = 1024;
  // What frames add to the packets of wire/atp_packet.h, for the window in bytes: Ethernet, IP,
  // UDP.
  Bytes frame_overhead = Bytes(42);
  std::uint32_t most_tensors = 4096;  // started and not ended; above 0
  AtpCongestionOptions congestion;
  AtpRecoveryOptions recovery;

  static constexpr std::uint32_t kMostWindow = 1 << 20;
  [[nodiscard]] Status validate() const;
  // Of a full packet on the line.
  [[nodiscard]] Bytes packet_bytes() const;
};

// One of a job's parameter servers.
struct AtpServerOptions {
  std::uint32_t job = 0;
  std::vector<std::uint8_t> groups = {1};  // workers of each group: 1 to 32 groups of 1 to 32
  std::uint32_t servers = 1;
  std::uint32_t index = 0;  // which of them, below servers
  std::uint32_t elements = 64;
  std::uint32_t window = 1024;
  bool keyed = false;
  // A sequence for which some worker's contribution has not come for so long fails the job.
  Duration deadline = Duration::milliseconds(30'000);

  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg
