// What the job key adds to one connection: everything sent gets a tag, and everything received is
// refused unless the peer sealed it in this session and it comes for the first time.
//
// Used by the event loop's thread only. Seals and checks without allocating.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <thalweg/endpoint.h>

#include "wire/authenticate.h"

namespace thalweg::net {

class PacketGuard {
 public:
  // `outgoing`: the scope of what this end sends. What it receives has the mirrored scope.
  PacketGuard(wire::JobToken job, const wire::JobKey& key, const wire::KeyScope& outgoing);

  // Writes header and tag to `head`. Requires the packet's final payload.
  void seal_data(wire::DataHeader header, std::span<std::byte, wire::data_overhead(true)> head,
                 std::span<const std::byte> payload);
  // Returns false if the packet must be dropped; it is then counted. Requires the header that was
  // decoded from this packet.
  [[nodiscard]] bool accept_data(std::span<const std::byte> packet,
                                 const wire::DataHeader& header) {
    return verifier_.check_data(packet, header) == wire::Refusal::kNone;
  }

  // Writes the tag of a message that was encoded with `keyed` and this sequence number.
  void seal_control(std::uint64_t sequence, std::span<std::byte> message) {
    sealer_.seal_control(sequence, message);
  }
  // Any result but kNone for a message on the stream means that the stream cannot be trusted any
  // more.
  [[nodiscard]] wire::Refusal check_control(std::span<const std::byte> message,
                                            const wire::ControlEnvelope& about) {
    return verifier_.check_control(message, about);
  }

  // Adds the numbers of refused packets and messages.
  void count(NetCounters& counters) const;

 private:
  wire::Sealer sealer_;
  wire::Verifier verifier_;
  std::uint16_t session_mark_;
};

}  // namespace thalweg::net
