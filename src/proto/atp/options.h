// Configuration of an ATP worker and an ATP server. Plain data, checked once by validate().
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "wire/atp_packet.h"

namespace thalweg::proto {

// Rate control of a worker (section 5.4): additive increase, multiplicative decrease, slow start.
struct AtpCongestionOptions {
  bool enabled = true;                 // off: the window stays at AtpWorkerOptions::window packets
  std::uint32_t initial_packets = 50;  // the window at the start; above 0
  // By how much the window grows: in slow start with every parameter packet, after it with every
  // window of them. 1 byte to 1 TiB.
  Bytes step = Bytes(1500);
  // The window at which slow start ends, until the first congestion. 1 byte to 1 TiB.
  Bytes threshold = Bytes(1 << 20);
  // While sums typically take longer than the shortest one took by more than this, slow start ends
  // and a window of initial_packets or more does not grow: packets then stand in queues that
  // neither mark nor overflow, and sums wait in them behind gradients. Above 0.
  Duration queue = Duration::milliseconds(5);
};

// When a worker considers a packet lost.
struct AtpRecoveryOptions {
  // The oldest sequence is lost after this many parameter packets in a row, per server, that
  // belong to later sequences. 0: only timeouts detect losses.
  std::uint32_t out_of_sequence = 3;
  // On: every sequence without a sum is lost, not only the oldest, once a sum arrives from its
  // server that is `out_of_sequence` or more of that server's sequences later; and a retransmission
  // is lost once the sum of a packet arrives that was sent a flight later. Off, as in the paper:
  // losses of one window are found one by one, and once the window stands still only by timeouts.
  bool all_holes = true;
  // With all_holes, once everything has been sent: the sum of a server's last sequence is enough
  // to find losses. Turn it off where the sums of one server overtake each other.
  bool tail_holes = true;
  // A sequence that later sums have overtaken is lost when it has taken `patience` times the
  // typical time. By then a switch that missed one worker's packet has asked for it and sent the
  // sum on (AtpWorker::on_missing), and the other workers need not send theirs again. 0: at once.
  std::int64_t patience = 2;
  // The timeout is `factor` times the typical time from a gradient to its parameter, limited to
  // [least, most]; every retransmission of a sequence doubles it for that sequence. At least 1.
  std::int64_t factor = 4;
  // The timeout before the first parameter, and the shortest one for what is sent after a pause:
  // how much later than this worker another may begin.
  Duration initial = Duration::milliseconds(20);
  // On: timeouts after a pause, before the first parameter, do not shrink the window. Turn it on
  // where workers send without knowing that the others have begun, perhaps much later.
  bool patient_start = false;
  Duration least = Duration::milliseconds(1);
  Duration most = Duration::milliseconds(500);
  // A worker asks again, straight at the server, for a sum whose check word is wrong. The worker
  // fails when so many sums of one sequence were wrong: once may be the last link to it, so often
  // is the server's memory, or a link that is of no use. From 1 to 255.
  std::uint8_t most_bad_sums = 4;
};

// How a worker predicts the exponents of blocks (proto/atp/exponents.h). All workers of a job use
// the same.
struct AtpPredictionOptions {
  // A call learns from the last call of its kind that began at least this many sequences or this
  // many calls of the kind before, or from the oldest that is known: its blocks wait for the sums
  // of that call, so this is how much of small tensors may be in flight. At least 1.
  std::uint32_t lag_sequences = 64;
  std::uint32_t lag_calls = 8;
  std::uint32_t most_kinds = 1024;  // when there are more, all are forgotten; at least 1
};

// The place of a worker in its job.
struct AtpSeat {
  std::uint8_t group = 0;
  std::uint8_t index = 0;  // within the group
  bool operator==(const AtpSeat&) const = default;
};

// One worker of a job.
struct AtpWorkerOptions {
  std::uint32_t job = 0;
  std::uint8_t group = 0;        // the worker's group, below group_count
  std::uint8_t index = 0;        // its place there, below fan_in
  std::uint8_t fan_in = 1;       // workers of the group, 1 to 32
  std::uint8_t group_count = 1;  // 1 to 32
  // The first switch towards the server that may aggregate: kAtpFirstLevel, as a rule;
  // kAtpSecondLevel for a worker that is a group of its own beside the server's switch;
  // kAtpServerLevel if no switch may.
  std::uint8_t level = wire::kAtpFirstLevel;
  std::uint32_t servers = 1;  // sequence s goes to server s mod servers; above 0
  // By server: the worker in the same process, if the server adds that worker's gradients itself
  // (AtpServerOptions::seat). It must be of a group of two or more. Empty: no server does.
  std::vector<std::optional<AtpSeat>> seats = {};
  // Elements of a packet, 1 to kAtpMostElements. All workers and servers of a job use the same.
  std::uint32_t elements = 64;
  bool keyed = false;  // packets carry a seal, which the driver fills in
  // The paths over which switches spread the packets of the job (wire/atp_packet.h, atp_path_of()),
  // 1 to kAtpMostPaths. How long sums take is then measured for each path.
  std::uint32_t paths = 1;
  // The most sequences in flight, a power of two up to kMostWindow. All workers and servers of a
  // job use the same.
  std::uint32_t window = 1024;
  // Bytes that Ethernet, IP and UDP add to a packet of wire/atp_packet.h; counted in the window.
  Bytes frame_overhead = Bytes(42);
  std::uint32_t most_tensors = 4096;  // tensors started and not ended; above 0
  AtpCongestionOptions congestion;
  AtpRecoveryOptions recovery;
  AtpPredictionOptions prediction;

  static constexpr std::uint32_t kMostWindow = 1 << 20;
  [[nodiscard]] Status validate() const;
  // The workers of this worker's group whose gradients of the sequence come by switches.
  [[nodiscard]] std::uint8_t fan_in_of(std::uint64_t sequence) const {
    const bool less = !seats.empty() && seats[sequence % seats.size()].has_value() &&
                      seats[sequence % seats.size()]->group == group;
    return static_cast<std::uint8_t>(fan_in - (less ? 1 : 0));
  }
  // Whether the server of the sequence is this worker's own.
  [[nodiscard]] bool own(std::uint64_t sequence) const {
    return !seats.empty() && seats[sequence % seats.size()] == AtpSeat{group, index};
  }
  // The size of a full packet on the line, frame overhead included.
  [[nodiscard]] Bytes packet_bytes() const;
};

// One of a job's parameter servers.
struct AtpServerOptions {
  std::uint32_t job = 0;
  std::vector<std::uint8_t> groups = {1};  // workers of each group: 1 to 32 groups of 1 to 32
  std::uint32_t servers = 1;
  std::uint32_t index = 0;  // which of the servers this is, below servers
  // The worker in the same process, whose driver gives its gradients to the server at once and
  // takes its sums from there. Neither crosses a link, and switches sum the other gradients. Its
  // group has two workers or more.
  std::optional<AtpSeat> seat = {};
  std::uint32_t elements = 64;
  std::uint32_t window = 1024;
  bool keyed = false;
  // Blocks may be repeated with another exponent (proto/atp/exponents.h). Takes twice the slots.
  bool repetitions = false;
  // The job fails when sequences are open and none has completed for this long.
  Duration deadline = Duration::milliseconds(30'000);

  [[nodiscard]] Status validate() const;
};

}  // namespace thalweg::proto
