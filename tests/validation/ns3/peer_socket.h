// ns-3's TCP socket with counters, and with what ns-3 3.37 does otherwise than the RFCs mended, so
// that what is compared is the same protocol. A Mend names each; ns3_peer's --mend chooses.
//
// DCTCP. RFC 8257, section 3.5: a DCTCP sender answers a loss as any TCP does.
// kAlphaOnLoss: TcpDctcp::GetSsThresh cuts by alpha/2 on every occasion, loss included. PeerDctcp
//    halves on a fast retransmit and on a timeout.
// kNoFloor: it has no floor. A window below one segment sends nothing until the timer fires.
//    PeerDctcp keeps two segments, as Linux does.
// kLossInCwr: in state CWR (the round trip after a cut for marks) TcpSocketBase counts duplicate
//    acknowledgements but never acts on them, and the state ends only with a cumulative
//    acknowledgement that cannot come: a loss during CWR always waits for the timer. PeerSocket
//    leaves CWR at the first duplicate.
// kEchoInRecovery: an echo that comes during fast recovery switches from RECOVERY to CWR, which
//    forgets the recovery point, with the same end. PeerSocket does not show echoes to the base
//    class while it recovers; they do not count into alpha.
//
// Recovery without SACK, of any transport.
// kStaleGuesses: TcpTxBuffer takes each duplicate for the arrival of one more segment above the
//    hole, and keeps these guesses when the recovery is over. It then retransmits the next hole as
//    if it were still recovering, and sends new segments in place of those it takes for arrived,
//    without a cut for what was lost since. RFC 6582 ends with the acknowledgement that covers
//    all that was sent when the loss was seen; Linux forgets its count there (tcp_reset_reno_sack).
//    PeerSocket forgets the guesses with the first acknowledgement of new data that ends them.
// kRaisingCut: TcpNewReno::GetSsThresh halves what is outstanding. After a long recovery that can
//    be many windows (data behind a hole stays outstanding), so that a loss raises the window.
//    RFC 5681 sets "no more than" that half; PeerNewReno halves the window where it is less, as
//    Linux does.
// kBurstAfterRecovery: when a recovery ends the window is ssthresh, however little is outstanding,
//    and all of it goes out at once. RFC 6582 (section 3.2, step 3) has this as the second of two
//    choices, with a warning of the burst. PeerSocket takes the first, as our sender does:
//    min(ssthresh, max(outstanding, a segment) + a segment).
#pragma once

#include <ns3/tcp-congestion-ops.h>
#include <ns3/tcp-dctcp.h>
#include <ns3/tcp-header.h>
#include <ns3/tcp-socket-base.h>

#include <cstdint>

#include "scenario.h"

namespace thalweg {

struct SocketCounters {
  std::uint64_t segments = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t echoes = 0;  // acknowledgements with ECE
};

class PeerNewReno : public ns3::TcpNewReno {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  void set_mended(Mends mended) { mended_ = mended; }
  std::uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state,
                            std::uint32_t bytes_in_flight) override;
  ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

 private:
  Mends mended_;
};

class PeerDctcp : public ns3::TcpDctcp {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  void set_mended(Mends mended) { mended_ = mended; }
  std::uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state,
                            std::uint32_t bytes_in_flight) override;
  void CwndEvent(ns3::Ptr<ns3::TcpSocketState> state,
                 ns3::TcpSocketState::TcpCAEvent_t event) override;
  ns3::Ptr<ns3::TcpCongestionOps> Fork() override;

 private:
  [[nodiscard]] std::uint32_t bounded(const ns3::TcpSocketState& state, std::uint32_t window) const;

  Mends mended_;
};

class PeerSocket : public ns3::TcpSocketBase {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  void set_mended(Mends mended) { mended_ = mended; }
  // Forgets what the handshake counted.
  void reset_counters() { counters_ = {}; }
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }
  [[nodiscard]] bool established() const { return m_state == ESTABLISHED; }

 protected:
  ns3::Ptr<ns3::TcpSocketBase> Fork() override;
  void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
  void ProcessAck(const ns3::SequenceNumber32& acknowledged, bool scoreboard_updated,
                  std::uint32_t delivered, const ns3::SequenceNumber32& old_head) override;
  void ReTxTimeout() override;
  std::uint32_t SendDataPacket(ns3::SequenceNumber32 sequence, std::uint32_t most,
                               bool with_ack) override;

 private:
  void forget_guesses(const ns3::TcpHeader& header);

  Mends mended_;
  SocketCounters counters_;
};

}  // namespace thalweg
