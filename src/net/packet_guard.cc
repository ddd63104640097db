#include "net/packet_guard.h"

namespace thalweg {
namespace {

KeyScope mirrored(const KeyScope& scope) {
  return {.sender = scope.receiver,
          .receiver = scope.sender,
          .sender_session = scope.receiver_session,
          .receiver_session = scope.sender_session};
}

}  // namespace

PacketGuard::PacketGuard(JobToken job, const JobKey& key, const KeyScope& outgoing)
    : sealer_(key, outgoing),
      verifier_(job, key, mirrored(outgoing)),
      session_mark_(session_mark(outgoing)) {}

void PacketGuard::seal_data(DataHeader header, std::span<std::byte, data_overhead(true)> head,
                            std::span<const std::byte> payload) {
  header.keyed = true;
  header.session = session_mark_;
  encode_data_header(header, head);
  sealer_.seal_data(header.sequence, head, payload);
}

void PacketGuard::count(NetCounters& counters) const {
  counters.packets_bad +=
      verifier_.data_count(Refusal::kJob) + verifier_.data_count(Refusal::kKeying);
  counters.packets_forged += verifier_.data_count(Refusal::kForged);
  counters.packets_replayed += verifier_.data_count(Refusal::kReplayed);
  counters.packets_stale += verifier_.data_count(Refusal::kStale);
  for (const Refusal refusal : {Refusal::kForged, Refusal::kReplayed, Refusal::kGap}) {
    counters.messages_forged += verifier_.control_count(refusal);
  }
}

}  // namespace thalweg
