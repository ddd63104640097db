// The constants of DLCP, as configuration. A default is the paper's where the paper names one
// (section 3.2.1), and otherwise fits a data centre with round trips of some 100 µs.
#pragma once

#include <cstdint>
#include <string>

#include <thalweg/result.h>

#include "base/units.h"
#include "proto/dlcp/send_order.h"

namespace thalweg::proto {

struct RateControlOptions {
  // The bandwidth of this host's link: the rate at which every flow starts, and the highest it ever
  // sends at. A line rate far above what the path carries fills the path's queues; one below it
  // wastes the path.
  Bandwidth line_rate = Bandwidth::gbps(10);
  // How often the receiver reports, while data arrives.
  Duration report_period = Duration::microseconds(200);
  // A report with fewer packets than this waits for more: a rate from two packets is noise.
  std::uint32_t least_report_packets = 8;
  // Δ: the path is congested when the sending rate is above Δ times the receiving rate.
  double congestion_factor = 2.0;
  // A congested report multiplies the rate by this.
  double decrease_factor = 0.5;
  // Any other report, in congestion avoidance, adds this part of the line rate.
  double increase_step = 0.05;
  // The rate never falls below this part of the line rate.
  double least_rate = 1.0 / 256;
  // Whether the rate returns to the line rate when a retransmission is requested, and when a
  // transfer begins (as in the paper).
  bool reset_on_retransmission = true;
  bool reset_on_transfer = true;
  // Beyond the paper: once congested, use `capacity_headroom` times the received rate as the line
  // rate. That line rate grows by increase_step of itself with every report that shows no
  // congestion at it. For paths of unknown bandwidth.
  bool learn_capacity = false;
  double capacity_headroom = 1.0;
};

// How long a receiver waits for data that a stop overtook (PathMeter explains the rule).
struct GraceOptions {
  // The wait while little is known about the path.
  Duration initial = Duration::milliseconds(1);
  // Added to every wait: the coarseness of the clocks and timers.
  Duration least = Duration::microseconds(20);
  // The longest margin, even after rounds that brought nothing.
  Duration most = Duration::milliseconds(100);
  // Packets that must have been seen before the path counts as known.
  std::uint32_t least_packets = 32;
  // Roughly how long a delay is remembered.
  Duration memory = Duration::milliseconds(200);
};

// When a transfer that has reached its bound, but not yet its target, stops waiting (DlcpReceiver).
struct PatienceOptions {
  // The wait is this many times as long as the missing segments would take at the pace of those
  // that arrived, limited to [least, most].
  double factor = 1.0;
  Duration least = Duration::microseconds(50);
  Duration most = Duration::milliseconds(100);
  // The assumed round trip until one was measured.
  Duration initial_round_trip = Duration::microseconds(200);
};

// How packets are distributed over several paths to the peer (PathShares).
struct PathOptions {
  // Off: packets are spread evenly, whatever arrives.
  bool learn = true;
  // A path has no fault if it delivers at least this part of what the others deliver.
  double tolerated = 0.95;
  // The weight of a path without fault is multiplied by this, up to 1.
  double growth = 1.1;
  // A path whose weight falls below this is left out.
  double least_weight = 1.0 / 16;
  // How long a path is left out before it is tried again.
  Duration retry = Duration::milliseconds(100);
  // Packets that must have been sent on a path before it is judged.
  std::uint32_t least_packets = 8;
  // Queues of paths are evened out in about this time, or more if they are long. 0: delays are
  // ignored.
  Duration pace = Duration::milliseconds(16);
  // Packets on all paths together, for each path, after which their delays are compared.
  std::uint32_t packets_per_path = 8;
};

// What a sender does whose receiver gives grants (GrantScheduler).
struct WantOptions {
  // It asks for a grant after it has waited so long for one, and then after twice as long each
  // time, up to `most`. Longer than data takes to arrive.
  Duration after = Duration::milliseconds(1);
  Duration most = Duration::milliseconds(100);
};

struct DlcpOptions {
  std::string peer = "peer";  // the peer's name in errors
  RateControlOptions rate;
  GraceOptions grace;
  PatienceOptions patience;
  PathOptions paths;
  WantOptions want;
  // Which of the transfers to this peer is sent first. A driver with several peers may order them
  // all by DlcpEndpoint::next_key(); `order_seed` then breaks ties.
  TransferOrder order;
  std::uint64_t order_seed = 0;
  // The driver limits what leaves to the rate of the host's line, for all peers together: data of
  // transfers with grants then leaves whenever the driver polls.
  bool paced_by_driver = false;
  // The most segments that poll_data() gives at once: 1 in a packet simulator, what one GSO call
  // takes on a socket. It does not change the average rate.
  std::uint32_t burst_segments = 44;
  // Bytes on the line beside the payload: Ethernet with gap, IPv4, UDP and our header.
  Bytes packet_overhead = Bytes(38 + 28 + 36);
  // The most transfers in flight in each direction; as many again may wait for the other end.
  std::uint32_t max_transfers = 4096;
  // The number of the first incoming transfer. A driver that reconnects to a peer continues where
  // the last connection ended, so that late packets of that connection are not mistaken for new
  // ones.
  std::uint32_t first_transfer = 0;

  // The error names the field, its value and what is allowed.
  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg::proto
