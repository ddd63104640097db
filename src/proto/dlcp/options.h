// The constants of DLCP, as configuration. The defaults are the paper's where it names one
// (section 3.2.1), and otherwise fit a data centre with round trips of some 100 µs.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg {

struct RateControlOptions {
  // The link's bandwidth: where every flow starts, and the most it ever sends. A line rate far
  // above what the path carries fills its queues; one below it wastes the path.
  Bandwidth line_rate = Bandwidth::gbps(10);
  // How often the receiver reports, while data arrives.
  Duration report_period = Duration::microseconds(200);
  // A report with fewer packets than this waits for more: a rate from two packets is noise.
  std::uint32_t least_report_packets = 8;
  // Δ: congested when more than Δ times as much is sent as is received.
  double congestion_factor = 2.0;
  // When congested, the rate is multiplied by this.
  double decrease_factor = 0.5;
  // Otherwise, in congestion avoidance, this part of the line rate is added.
  double increase_step = 0.05;
  // The rate never falls below this part of the line rate.
  double least_rate = 1.0 / 256;
  // A request for retransmission, and a transfer that begins, send at line rate again (the paper).
  bool reset_on_retransmission = true;
  bool reset_on_transfer = true;
  // Beyond the paper: once congested, take `capacity_headroom` times the rate that came through for
  // the line rate. It grows again by increase_step of itself with every report that shows no
  // congestion at that rate. For paths whose bandwidth nobody knows.
  bool learn_capacity = false;
  double capacity_headroom = 1.0;
};

// How long a receiver waits for data that a stop overtook (PathMeter explains the rule).
struct GraceOptions {
  // Waited while little is known of the path.
  Duration initial = Duration::milliseconds(1);
  // Added to every wait: the coarseness of the clocks and timers.
  Duration least = Duration::microseconds(20);
  // No margin is longer than this, rounds that brought nothing included.
  Duration most = Duration::milliseconds(100);
  // Packets that must have been seen before the path counts as known.
  std::uint32_t least_packets = 32;
  // For how long a delay is remembered, about.
  Duration memory = Duration::milliseconds(200);
};

// When a transfer that has its bound, but not yet its target, gives up waiting (DlcpReceiver).
struct PatienceOptions {
  // Of the time that the missing segments would take at the pace of those that came.
  double factor = 1.0;
  Duration least = Duration::microseconds(50);
  Duration most = Duration::milliseconds(100);
  // Taken for the round trip until one was measured.
  Duration initial_round_trip = Duration::microseconds(200);
};

// How packets are dealt over several paths to the peer (PathShares).
struct PathOptions {
  // Off: evenly, whatever arrives.
  bool learn = true;
  // A path that brings this part of what the others do has no fault.
  double tolerated = 0.95;
  // The weight of a path that brings its part is multiplied by this.
  double growth = 1.1;
  // A path that is worth less than this, of one without fault, is left out.
  double least_weight = 1.0 / 16;
  // For so long; then it is tried again.
  Duration retry = Duration::milliseconds(100);
  // Packets that must have been sent by a path before it is judged.
  std::uint32_t least_packets = 8;
};

struct DlcpOptions {
  std::string peer = "peer";  // in errors
  RateControlOptions rate;
  GraceOptions grace;
  PatienceOptions patience;
  PathOptions paths;
  // Segments that poll_data() gives at once: 1 in a packet simulator, what one GSO call takes on a
  // socket. The average rate holds whatever this is.
  std::uint32_t burst_segments = 44;
  // Bytes on the line beside the payload: Ethernet with gap, IPv4, UDP and our header.
  Bytes packet_overhead = Bytes(38 + 28 + 36);
  // Transfers in flight, each way; as many again may wait for the other end.
  std::uint32_t max_transfers = 4096;
  // Numbers of our incoming transfers start here. A driver that reconnects to a peer goes on where
  // the last connection ended, so that packets of that one are not taken for new ones.
  std::uint32_t first_transfer = 0;

  // Names the field, its value and what is allowed.
  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg
