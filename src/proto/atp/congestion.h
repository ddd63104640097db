// The window of an ATP worker in bytes (section 5.4, "Rate Control"). Marks and losses of packets
// that were in flight together cut it once. Beyond the paper it looks at how long sums take: a
// queue that stands ends its growth, and a loss where none stands costs an eighth and not a half,
// since nothing says that it was of congestion.
#pragma once

#include <cstdint>
#include <optional>

#include "proto/atp/options.h"

namespace thalweg {

class AtpCongestion {
 public:
  // Requires options that validate.
  explicit AtpCongestion(const AtpWorkerOptions& options);

  // A parameter packet came. `next`: the first sequence that has not been sent.
  void on_parameter(std::uint64_t sequence, bool congested, std::uint64_t next);
  void on_loss(std::uint64_t sequence, std::uint64_t next);
  // A sum took so long, and typically does.
  void on_delay(Duration sample, Duration typical);
  // What was sent again is lost too: back to one packet, as TCP after a timeout.
  void on_retransmission_lost(std::uint64_t next);

  // How many packets may be in flight: the window over a packet's size, rounded up.
  [[nodiscard]] std::uint32_t packets() const;
  [[nodiscard]] Bytes window() const { return Bytes(window_); }
  [[nodiscard]] Bytes threshold() const { return Bytes(threshold_); }

 private:
  // To `window` bytes, unless it was cut in this flight.
  void cut(std::int64_t window, std::uint64_t sequence, std::uint64_t next);
  [[nodiscard]] bool queued() const;

  bool enabled_;
  std::uint32_t most_packets_;
  std::int64_t packet_;
  std::int64_t step_;
  std::int64_t window_;
  std::int64_t threshold_;
  std::int64_t initial_;
  Duration queue_;
  std::optional<Duration> least_ = {};  // that a sum took
  Duration typical_;
  std::int64_t credit_ = 0;      // bytes acknowledged towards the next step
  std::uint64_t cut_until_ = 0;  // packets below this were in flight when it was last cut
};

}  // namespace thalweg
