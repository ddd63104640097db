// GrantScheduler: receiver grants (DLCP-R, docs/protocol-dlcp.md). One object for each host, shared
// by its endpoints, decides over all peers together which incoming transfer may send how much.
//
// Literal DLCP lets every sender start at line rate, so many senders to one host lose most of what
// they send before any of them hears of it. Here a transfer may send a first burst by itself, and
// the rest as granted. A grant is a count: so many segments of the transfer may have left in its
// first round. Counts only grow, so a grant that is doubled or late does nothing.
//
// A transfer is in sight once something of it arrived, or its sender asked (WantMessage). In flight
// is what was granted and neither arrived nor was overtaken by a later segment: a lost segment
// frees its place when the next one arrives. The scheduler grants `quantum` segments at a time to
// the first transfer in order (TransferOrder) that has less in flight than a transfer may, while
// the host has less in flight than it may. A transfer is granted what the bound needs and one
// segment more for each that was lost, so a lost segment is replaced by an unsent one.
//
// A sender whose own link is the bottleneck says so (busy). Its transfers have a limit of their own
// and do not count for the host: what a sender cannot send now must not hold a place in flight.
//
// A sender may also fall silent: its process stops, its host vanishes, or it waits for data that
// others have to send first. While others want grants, a transfer of which nothing came for `stall`
// loses its places, and gets no grant until something comes again. A driver may look for such
// transfers by a timer (on_timeout); without one they are found when a sender asks.
//
// Invariants:
// 1. Never more than `segments` are granted, and grants of a transfer never fall.
// 2. in_flight() is above limit() only by first bursts, which are not granted, by transfers that
//    were silent, and after limit() fell.
// 3. If a transfer in sight that is not silent wants grants and in_flight() is 0, poll() gives one.
// 4. After close() nothing of the transfer is kept.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <unordered_map>
#include <vector>

#include <thalweg/result.h>

#include "base/prng.h"
#include "base/units.h"
#include "proto/dlcp/send_order.h"

namespace thalweg::proto {

struct GrantOptions {
  // The bandwidth of this host's link, and the round trip to its peers while the network is idle.
  Bandwidth line_rate = Bandwidth::gbps(10);
  Duration round_trip = Duration::microseconds(100);
  // Bytes in flight to the host, in products of bandwidth and round trip. Less leaves the link idle
  // while granted senders are busy elsewhere; more overflows the switch's buffer.
  double overcommit = 1.2;
  // So many transfers share that while there are as many; fewer get more each.
  std::uint32_t parallel = 10;
  // Segments in one grant.
  std::uint32_t quantum = 8;
  // First bursts of all peers in sight together, in products of bandwidth and round trip.
  double first = 0.1;
  // This host's own link is the bottleneck of what it sends (busy) while more than this may leave,
  // in products of bandwidth and round trip.
  double busy_above = 16;
  // A transfer of a busy sender has in flight what a host may, divided by this.
  std::uint32_t busy_parallel = 4;
  // A peer is in sight for so long after its last transfer.
  Duration sight = Duration::milliseconds(10);
  // After so long without an arrival, and at least 4 round trips, a transfer is silent.
  Duration stall = Duration::milliseconds(100);
  TransferOrder order = {.by_urgency = true, .by_size = true, .ageing = 0.01};
  std::uint64_t seed = 1;  // of the order among transfers that are equal otherwise

  [[nodiscard]] Status validate() const;
};

class GrantScheduler {
 public:
  enum class Ticket : std::uint32_t {};

  // A transfer whose receive was posted.
  struct Incoming {
    std::uint32_t peer = 0;      // the owner's name for the peer; returned in grants
    std::uint32_t transfer = 0;  // the receiver's number
    std::uint32_t segments = 0;
    std::uint32_t needed = 0;  // the fewest that must arrive; at most `segments`
    Bytes segment_bytes;       // above 0
    std::uint32_t urgency = 0;
  };
  struct Grant {
    std::uint32_t peer = 0;
    std::uint32_t transfer = 0;
    std::uint32_t segments = 0;
  };

  // Requires options that validate.
  explicit GrantScheduler(const GrantOptions& options);

  Ticket open(const Incoming& incoming, Time now);
  // Segments that the transfer may send without a grant.
  [[nodiscard]] std::uint32_t first(Ticket ticket) const { return at(ticket).first; }
  // `arrived` segments of the first round are here. `reached`: the last of them was the reached-th
  // that left; at least `arrived`.
  void progress(Ticket ticket, std::uint32_t arrived, std::uint32_t reached, Time now);
  // The sender asks: it has sent `sent` segments, and knows of a grant of `granted`.
  void want(Ticket ticket, std::uint32_t sent, std::uint32_t granted, bool busy, Time now);
  void close(Ticket ticket);
  // Optional: looks for silent transfers. Call it at next_timeout(), or soon after.
  void on_timeout(Time now);
  // None: on_timeout() would find nothing.
  [[nodiscard]] std::optional<Time> next_timeout() const;
  // Gives the next grant, which the driver must send to the peer; false if there is none. Call it
  // after each of the calls above.
  bool poll(Grant& out);

  // An endpoint of this host has so many more, or fewer, bytes that may leave now.
  void offer(std::int64_t bytes) { offered_ += bytes; }
  // This host's own link is the bottleneck of what it sends.
  [[nodiscard]] bool busy() const { return offered_ > busy_above_; }

  // From now on this is the round trip to the peers. Requires one above 0.
  void set_round_trip(Duration round_trip);

  [[nodiscard]] Bytes in_flight() const { return Bytes(in_flight_); }
  [[nodiscard]] Bytes limit() const { return Bytes(limit_); }
  [[nodiscard]] std::size_t transfers() const { return records_.size() - free_.size(); }
  [[nodiscard]] const GrantOptions& options() const { return options_; }

 private:
  struct Key {
    std::uint32_t urgency = 0;
    std::int64_t score = 0;
    std::uint64_t tie = 0;
    std::uint32_t index = 0;
    auto operator<=>(const Key&) const = default;
  };
  struct Record {
    Incoming incoming;
    std::uint32_t first = 0;
    std::uint32_t granted = 0;
    std::uint32_t arrived = 0;
    std::uint32_t reached = 0;
    std::uint32_t goal = 0;      // grants end here, as far as is known
    std::int64_t in_flight = 0;  // bytes, as counted in in_flight_
    std::uint64_t tie = 0;
    Time since;  // when it came into sight
    Time moved;  // when something of it arrived last, or was granted while nothing was in flight
    bool in_use = false;
    bool in_sight = false;
    bool busy = false;    // its sender said so
    bool silent = false;  // nothing of it came for `stall`
    bool queued = false;  // in wanting_, under `key`
    Key key;
  };

  [[nodiscard]] const Record& at(Ticket ticket) const {
    return records_[static_cast<std::size_t>(ticket)];
  }
  [[nodiscard]] std::uint32_t first_burst(const Incoming& incoming, Time now);
  void come_into_sight(Record& record, Time now);
  // Something was heard of the transfer.
  void hear_of(Record& record, Time now);
  // Takes their places from silent transfers.
  void silence(Time now);
  [[nodiscard]] Duration stall() const;
  // Brings what is derived (goal, bytes in flight, place in the order) up to date.
  void update(std::uint32_t index);
  // Segments that a transfer of a busy sender may be granted now.
  [[nodiscard]] std::uint32_t busy_room(const Record& record) const;
  void give(std::uint32_t index, std::uint32_t segments, Grant& out);
  [[nodiscard]] std::int64_t transfer_limit() const;

  GrantOptions options_;
  std::int64_t product_ = 0;  // bytes: bandwidth times round trip
  std::int64_t limit_ = 0;
  std::int64_t busy_above_ = 0;
  Prng prng_;
  std::vector<Record> records_;
  std::vector<std::uint32_t> free_;
  std::set<Key> wanting_;  // in sight, neither busy nor silent, and granted less than their goal
  std::vector<std::uint32_t> soon_;  // of busy senders, or to be told again, by poll()
  std::unordered_map<std::uint32_t, Time> peers_;  // when a transfer of the peer was open last
  std::int64_t in_flight_ = 0;
  std::int64_t offered_ = 0;
  Time now_;        // of the last call that told it
  Time looked_at_;  // when on_timeout() looked for silent transfers
};

}  // namespace thalweg::proto
