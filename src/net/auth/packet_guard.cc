#include "net/auth/packet_guard.h"

namespace thalweg::net {
namespace {

wire::KeyScope mirrored(const wire::KeyScope& scope) {
  return {.sender = scope.receiver,
          .receiver = scope.sender,
          .sender_session = scope.receiver_session,
          .receiver_session = scope.sender_session};
}

}  // namespace

PacketGuard::PacketGuard(wire::JobToken job, const wire::JobKey& key,
                         const wire::KeyScope& outgoing)
    : sealer_(key, outgoing),
      verifier_(job, key, mirrored(outgoing)),
      session_mark_(wire::session_mark(outgoing)) {}

void PacketGuard::seal_data(wire::DataHeader header,
                            std::span<std::byte, wire::data_overhead(true)> head,
                            std::span<const std::byte> payload) {
  header.keyed = true;
  header.session = session_mark_;
  wire::encode_data_header(header, head);
  sealer_.seal_data(header.sequence, head, payload);
}

void PacketGuard::count(NetCounters& counters) const {
  counters.packets_bad +=
      verifier_.data_count(wire::Refusal::kJob) + verifier_.data_count(wire::Refusal::kKeying);
  counters.packets_forged += verifier_.data_count(wire::Refusal::kForged);
  counters.packets_replayed += verifier_.data_count(wire::Refusal::kReplayed);
  counters.packets_stale += verifier_.data_count(wire::Refusal::kStale);
  for (const wire::Refusal refusal :
       {wire::Refusal::kForged, wire::Refusal::kReplayed, wire::Refusal::kGap}) {
    counters.messages_forged += verifier_.control_count(refusal);
  }
}

}  // namespace thalweg::net
