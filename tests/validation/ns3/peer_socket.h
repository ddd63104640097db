// ns-3's TCP socket with counters, and with the faults of ns-3 3.37 mended that make DCTCP wait for
// timeouts. RFC 8257, section 3.5: a DCTCP sender answers a loss as any TCP does.
//
// 1. TcpDctcp::GetSsThresh cuts by alpha/2 on every occasion, loss included. PeerDctcp halves on a
//    fast retransmit and on a timeout.
// 2. It has no floor. A window below one segment sends nothing until the timer fires. PeerDctcp
//    keeps two segments, as Linux does.
// 3. In state CWR (the round trip after a cut for marks) TcpSocketBase counts duplicate
//    acknowledgements but never acts on them, and the state ends only with a cumulative
//    acknowledgement that cannot come: a loss during CWR always waits for the timer. PeerSocket
//    leaves CWR at the first duplicate.
// 4. An echo that comes during fast recovery switches from RECOVERY to CWR, which forgets the
//    recovery point, with the same end. PeerSocket does not show echoes to the base class while it
//    recovers; they do not count into alpha.
#pragma once

#include <ns3/tcp-dctcp.h>
#include <ns3/tcp-header.h>
#include <ns3/tcp-socket-base.h>

#include <cstdint>

namespace thalweg {

struct SocketCounters {
  std::uint64_t segments = 0;
  std::uint64_t retransmissions = 0;
  std::uint64_t timeouts = 0;
  std::uint64_t echoes = 0;  // acknowledgements with ECE
};

class PeerDctcp : public ns3::TcpDctcp {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  std::uint32_t GetSsThresh(ns3::Ptr<const ns3::TcpSocketState> state,
                            std::uint32_t bytes_in_flight) override;
  void CwndEvent(ns3::Ptr<ns3::TcpSocketState> state,
                 ns3::TcpSocketState::TcpCAEvent_t event) override;
  ns3::Ptr<ns3::TcpCongestionOps> Fork() override;
};

class PeerSocket : public ns3::TcpSocketBase {
 public:
  static ns3::TypeId GetTypeId();  // NOLINT(readability-identifier-naming)

  // Whether faults 3 and 4 are mended. Off without ECN, where they do not occur.
  void set_mended(bool mended) { mended_ = mended; }
  // Forgets what the handshake counted.
  void reset_counters() { counters_ = {}; }
  [[nodiscard]] const SocketCounters& counters() const { return counters_; }
  [[nodiscard]] bool established() const { return m_state == ESTABLISHED; }

 protected:
  ns3::Ptr<ns3::TcpSocketBase> Fork() override;
  void ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) override;
  void ReTxTimeout() override;
  std::uint32_t SendDataPacket(ns3::SequenceNumber32 sequence, std::uint32_t most,
                               bool with_ack) override;

 private:
  bool mended_ = false;
  SocketCounters counters_;
};

}  // namespace thalweg
