// The window of an ATP worker in bytes (section 5.4, "Rate Control"). Marks and losses of packets
// that were in flight together cut it once.
#pragma once

#include <cstdint>

#include "proto/atp/options.h"

namespace thalweg {

class AtpCongestion {
 public:
  // Requires options that validate.
  explicit AtpCongestion(const AtpWorkerOptions& options);

  // A parameter packet came. `next`: the first sequence that has not been sent.
  void on_parameter(std::uint64_t sequence, bool congested, std::uint64_t next);
  void on_loss(std::uint64_t sequence, std::uint64_t next) { cut(sequence, next); }
  // What was sent again is lost too: back to one packet, as TCP after a timeout.
  void on_retransmission_lost(std::uint64_t next);

  // How many packets may be in flight: the window over a packet's size, rounded up.
  [[nodiscard]] std::uint32_t packets() const;
  [[nodiscard]] Bytes window() const { return Bytes(window_); }
  [[nodiscard]] Bytes threshold() const { return Bytes(threshold_); }

 private:
  void cut(std::uint64_t sequence, std::uint64_t next);

  bool enabled_;
  std::uint32_t most_packets_;
  std::int64_t packet_;
  std::int64_t step_;
  std::int64_t window_;
  std::int64_t threshold_;
  std::int64_t credit_ = 0;      // bytes acknowledged towards the next step
  std::uint64_t cut_until_ = 0;  // packets below this were in flight when it was last cut
};

}  // namespace thalweg
