// What the job key adds to one connection: tags on all that is sent, and the refusal of all that
// was not sealed by the peer, in this session, once.
//
// For the loop's thread. Seals and checks without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <thalweg/endpoint.h>

#include "wire/authenticate.h"

namespace thalweg {

class PacketGuard {
 public:
  // `outgoing`: the scope of what this end sends; what it receives has the mirrored one.
  PacketGuard(JobToken job, const JobKey& key, const KeyScope& outgoing);

  // Writes header and tag. Requires the payload that the packet will have.
  void seal_data(DataHeader header, std::span<std::byte, data_overhead(true)> head,
                 std::span<const std::byte> payload);
  // False: drop it; it was counted. Requires a header that decoded well from the packet.
  [[nodiscard]] bool accept_data(std::span<const std::byte> packet, const DataHeader& header) {
    return verifier_.check_data(packet, header) == Refusal::kNone;
  }

  // Fills in the tag of a message encoded with `keyed` and this sequence number.
  void seal_control(std::uint64_t sequence, std::span<std::byte> message) {
    sealer_.seal_control(sequence, message);
  }
  // Anything but kNone, on the stream: it cannot be trusted any more.
  [[nodiscard]] Refusal check_control(std::span<const std::byte> message,
                                      const ControlEnvelope& about) {
    return verifier_.check_control(message, about);
  }

  // Adds what was refused.
  void count(NetCounters& counters) const;

 private:
  Sealer sealer_;
  Verifier verifier_;
  std::uint16_t session_mark_;
};

}  // namespace thalweg
