// DCTCP (RFC 8257): the window is cut by the fraction of packets that were marked, once per window.
#pragma once

#include "sim/tcp/tcp_sender.h"

namespace thalweg::sim {

// alpha, a running mean of the marked fraction F, is updated once per window of data:
//   alpha <- (1 - g) alpha + g F
// The first mark in a window cuts the window by alpha / 2. Every packet is acknowledged at once and
// on its own, so F is a fraction of acknowledgements and exact; the receiver needs no state. A loss
// halves the window as in Reno and does not change alpha (section 3.5).
class DctcpSender : public TcpSender {
 public:
  // The parameters must outlive the sender.
  DctcpSender(const DctcpParameters& parameters, std::uint64_t flow_bytes,
              std::optional<double> window);

 protected:
  void observe(Time now, const Acknowledgement& ack) override;
  // An acknowledgement with a mark does not grow the window.
  void grow(Time now, const Acknowledgement& ack, std::uint64_t bytes) override;
  // Retransmissions are ECN-capable too, because a queue that marks drops packets that are not.
  void tag(SegmentToSend& segment) const override;

 private:
  void cut();

  double g_;
  double alpha_;
  std::uint64_t window_end_ = 0;  // where the window being counted ends
  std::uint64_t cut_end_ = 0;     // marks on bytes sent below this belong to the last cut
  std::uint32_t answered_ = 0;    // packets acknowledged in the window being counted
  std::uint32_t marked_ = 0;
};

}  // namespace thalweg::sim
