#include "peer_socket.h"

#include <ns3/tcp-tx-buffer.h>

#include <algorithm>

namespace thalweg {

using State = ns3::TcpSocketState;

NS_OBJECT_ENSURE_REGISTERED(PeerNewReno);
NS_OBJECT_ENSURE_REGISTERED(PeerDctcp);
NS_OBJECT_ENSURE_REGISTERED(PeerSocket);

ns3::TypeId PeerNewReno::GetTypeId() {
  static ns3::TypeId id = ns3::TypeId("thalweg::PeerNewReno")
                              .SetParent<ns3::TcpNewReno>()
                              .AddConstructor<PeerNewReno>();
  return id;
}

std::uint32_t PeerNewReno::GetSsThresh(ns3::Ptr<const State> state, std::uint32_t bytes_in_flight) {
  const bool bounded = mended_.contains(Mend::kRaisingCut);
  return TcpNewReno::GetSsThresh(
      state, bounded ? std::min(bytes_in_flight, state->m_cWnd.Get()) : bytes_in_flight);
}

ns3::Ptr<ns3::TcpCongestionOps> PeerNewReno::Fork() { return ns3::CopyObject<PeerNewReno>(this); }

ns3::TypeId PeerDctcp::GetTypeId() {
  static ns3::TypeId id =
      ns3::TypeId("thalweg::PeerDctcp").SetParent<ns3::TcpDctcp>().AddConstructor<PeerDctcp>();
  return id;
}

std::uint32_t PeerDctcp::bounded(const State& state, std::uint32_t window) const {
  return mended_.contains(Mend::kNoFloor) ? std::max(2 * state.m_segmentSize, window) : window;
}

std::uint32_t PeerDctcp::GetSsThresh(ns3::Ptr<const State> state, std::uint32_t bytes_in_flight) {
  const bool loss =
      state->m_congState == State::CA_RECOVERY || state->m_congState == State::CA_LOSS;
  if (loss && mended_.contains(Mend::kAlphaOnLoss)) return bounded(*state, state->m_cWnd.Get() / 2);
  return bounded(*state, TcpDctcp::GetSsThresh(state, bytes_in_flight));
}

// The socket asks for GetSsThresh at a timeout before it enters CA_LOSS, and tells of the loss
// right after, the window still as it was.
void PeerDctcp::CwndEvent(ns3::Ptr<State> state, State::TcpCAEvent_t event) {
  if (event == State::CA_EVENT_LOSS && state->m_congState != State::CA_LOSS &&
      mended_.contains(Mend::kAlphaOnLoss)) {
    state->m_ssThresh = bounded(*state, state->m_cWnd.Get() / 2);
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
  if (mended_.contains(Mend::kStaleGuesses)) forget_guesses(header);

  const bool duplicate = header.GetAckNumber() == m_txBuffer->HeadSequence() &&
                         header.GetAckNumber() < m_tcb->m_highTxMark && packet->GetSize() == 0;
  if (duplicate && m_tcb->m_congState == State::CA_CWR && mended_.contains(Mend::kLossInCwr)) {
    m_tcb->m_congState = State::CA_OPEN;
  }

  const bool recovering =
      m_tcb->m_congState == State::CA_RECOVERY || m_tcb->m_congState == State::CA_LOSS;
  if (!echo || !recovering || !mended_.contains(Mend::kEchoInRecovery)) {
    return TcpSocketBase::ReceivedAck(packet, header);
  }
  ns3::TcpHeader without_echo = header;
  without_echo.SetFlags(static_cast<std::uint8_t>(header.GetFlags() & ~ns3::TcpHeader::ECE));
  TcpSocketBase::ReceivedAck(packet, without_echo);
}

// Within a recovery the guesses are what lets new segments out.
void PeerSocket::forget_guesses(const ns3::TcpHeader& header) {
  const bool new_data = header.GetAckNumber() > m_txBuffer->HeadSequence();
  const bool goes_on =
      m_tcb->m_congState == State::CA_RECOVERY && header.GetAckNumber() < m_recover;
  if (m_state == ESTABLISHED && new_data && !goes_on && m_txBuffer->GetSacked() > 0) {
    m_txBuffer->ResetRenoSack();
  }
}

// The base class sends only after this.
void PeerSocket::ProcessAck(const ns3::SequenceNumber32& acknowledged, bool scoreboard_updated,
                            std::uint32_t delivered, const ns3::SequenceNumber32& old_head) {
  const bool recovered = m_tcb->m_congState == State::CA_RECOVERY;
  TcpSocketBase::ProcessAck(acknowledged, scoreboard_updated, delivered, old_head);
  if (!recovered || m_tcb->m_congState != State::CA_OPEN) return;
  if (!mended_.contains(Mend::kBurstAfterRecovery)) return;
  const std::uint32_t segment = m_tcb->m_segmentSize;
  m_tcb->m_cWnd = std::min(m_tcb->m_ssThresh.Get(), std::max(UnAckDataCount(), segment) + segment);
  m_tcb->m_cWndInfl = m_tcb->m_cWnd;
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
