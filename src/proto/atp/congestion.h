// AtpCongestion: the congestion window of an ATP worker, in bytes (section 5.4, "Rate Control").
// Marks and losses of packets that were in flight together cut the window once: marks by the part
// of sums that echo them, as DCTCP, and losses by what stands in queues. Beyond the paper it
// watches how long sums take:
// - slow start ends as soon as several sums in a row stood in a queue, and what it put there is
//   taken back;
// - the window does not grow while a queue stands, and gives up the growth that led to it. Queues
//   are short after a pause, so pauses would make it grow without end otherwise;
// - a loss while sums take less than twice the least costs nothing, since nothing shows that
//   congestion caused it.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/atp/options.h"

namespace thalweg::proto {

class AtpCongestion {
 public:
  // Requires options that validate.
  explicit AtpCongestion(const AtpWorkerOptions& options);

  // A parameter packet arrived. `full`: the window held packets back, so it was put to the test.
  // `next`: the first sequence that has not been sent.
  void on_parameter(std::uint64_t sequence, bool congested, bool full, std::uint64_t next);
  void on_loss(std::uint64_t sequence, std::uint64_t next);
  // A sum took `sample` from its gradient to its parameter; sums typically take `typical`.
  void on_delay(Duration sample, Duration typical);
  // A sum of the first flight after a pause took `sample`. It may have waited for workers that
  // began later, so it says nothing of what is typical; but no queue stood before its gradient.
  void on_first(Duration sample);
  // A retransmission was lost too: the window falls to one packet, as TCP's after a timeout.
  void on_retransmission_lost(std::uint64_t next);

  // How many packets may be in flight: the window divided by a packet's size, rounded up.
  [[nodiscard]] std::uint32_t packets() const;
  [[nodiscard]] Bytes window() const { return Bytes(window_); }
  [[nodiscard]] Bytes threshold() const { return Bytes(threshold_); }

 private:
  // Cuts the window to `window` bytes, unless `sequence` was in flight at the last cut.
  void cut(std::int64_t window, std::uint64_t sequence, std::uint64_t next);
  void note_mark(std::uint64_t sequence, bool congested, std::uint64_t next);
  // Sums typically take so much longer than the least that a queue must stand.
  [[nodiscard]] bool queued() const;
  // Takes back what the window grew by while no queue stood.
  void give_up_growth();
  // In slow start: ends it if this sum and those before it stood in a queue.
  void look_for_queue(Duration sample);

  bool enabled_;
  std::uint32_t most_packets_;
  // Bytes:
  std::int64_t packet_;
  std::int64_t step_;
  std::int64_t window_;
  std::int64_t threshold_;
  std::int64_t initial_;
  Duration queue_;
  std::optional<Duration> least_ = {};     // the shortest time that a sum took, after on_first()
  std::optional<Duration> shortest_ = {};  // the shortest time that any took: without a queue
  Duration typical_;
  Duration lately_;    // the least of the last sums
  int looked_at_ = 0;  // how many these are
  // The window at the start of this flight, and of the one before, in which its packets were sent.
  std::int64_t flight_window_;
  std::int64_t window_before_;
  std::int64_t marked_;           // the part of sums that echo congestion, an average over flights
  std::int64_t flight_sums_ = 0;  // parameters of this flight, and those that echo congestion
  std::int64_t flight_marks_ = 0;
  std::uint64_t flight_until_ = 0;
  bool standing_ = false;        // queued() was true when the last parameter arrived
  std::int64_t grown_ = 0;       // by how much the window grew since then, beyond slow start
  std::int64_t credit_ = 0;      // bytes acknowledged towards the next step
  std::uint64_t cut_until_ = 0;  // sequences below this were in flight at the last cut
};

}  // namespace thalweg::proto
