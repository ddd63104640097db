#include "peer_socket.h"

#include <ns3/tcp-tx-buffer.h>

#include <algorithm>

namespace thalweg {

using State = ns3::TcpSocketState;

namespace {

std::uint32_t at_least_two_segments(const State& state, std::uint32_t window) {
  return std::max(2 * state.m_segmentSize, window);
}

std::uint32_t half_window(const State& state) {
  return at_least_two_segments(state, state.m_cWnd.Get() / 2);
}

}  // namespace

NS_OBJECT_ENSURE_REGISTERED(PeerDctcp);
NS_OBJECT_ENSURE_REGISTERED(PeerSocket);

ns3::TypeId PeerDctcp::GetTypeId() {
  static ns3::TypeId id =
      ns3::TypeId("thalweg::PeerDctcp").SetParent<ns3::TcpDctcp>().AddConstructor<PeerDctcp>();
  return id;
}

std::uint32_t PeerDctcp::GetSsThresh(ns3::Ptr<const State> state, std::uint32_t bytes_in_flight) {
  const bool loss =
      state->m_congState == State::CA_RECOVERY || state->m_congState == State::CA_LOSS;
  if (loss) return half_window(*state);
  return at_least_two_segments(*state, TcpDctcp::GetSsThresh(state, bytes_in_flight));
}

// The socket asks for GetSsThresh at a timeout before it enters CA_LOSS, and tells of the loss
// right after, the window still as it was.
void PeerDctcp::CwndEvent(ns3::Ptr<State> state, State::TcpCAEvent_t event) {
  if (event == State::CA_EVENT_LOSS && state->m_congState != State::CA_LOSS) {
    state->m_ssThresh = half_window(*state);
  }
  TcpDctcp::CwndEvent(state, event);
}

ns3::Ptr<ns3::TcpCongestionOps> PeerDctcp::Fork() { return ns3::CopyObject<PeerDctcp>(this); }

ns3::TypeId PeerSocket::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("thalweg::PeerSocket")
                              .SetParent<ns3::TcpSocketBase>()
                              .AddConstructor<PeerSocket>();
  return id;
}

ns3::Ptr<ns3::TcpSocketBase> PeerSocket::Fork() { return ns3::CopyObject<PeerSocket>(this); }

void PeerSocket::ReceivedAck(ns3::Ptr<ns3::Packet> packet, const ns3::TcpHeader& header) {
  const bool echo = (header.GetFlags() & ns3::TcpHeader::ECE) != 0;
  if (echo) ++counters_.echoes;
  if (!mended_) return TcpSocketBase::ReceivedAck(packet, header);

  const bool duplicate = header.GetAckNumber() == m_txBuffer->HeadSequence() &&
                         header.GetAckNumber() < m_tcb->m_highTxMark && packet->GetSize() == 0;
  if (duplicate && m_tcb->m_congState == State::CA_CWR) m_tcb->m_congState = State::CA_OPEN;

  const bool recovering =
      m_tcb->m_congState == State::CA_RECOVERY || m_tcb->m_congState == State::CA_LOSS;
  if (!echo || !recovering) return TcpSocketBase::ReceivedAck(packet, header);
  ns3::TcpHeader without_echo = header;
  without_echo.SetFlags(static_cast<std::uint8_t>(header.GetFlags() & ~ns3::TcpHeader::ECE));
  TcpSocketBase::ReceivedAck(packet, without_echo);
}

void PeerSocket::ReTxTimeout() {
  if (m_state == ESTABLISHED && m_txBuffer->Size() > 0) ++counters_.timeouts;
  TcpSocketBase::ReTxTimeout();
}

std::uint32_t PeerSocket::SendDataPacket(ns3::SequenceNumber32 sequence, std::uint32_t most,
                                         bool with_ack) {
  ++counters_.segments;
  if (sequence < m_tcb->m_highTxMark) ++counters_.retransmissions;
  return TcpSocketBase::SendDataPacket(sequence, most, with_ack);
}

}  // namespace thalweg
