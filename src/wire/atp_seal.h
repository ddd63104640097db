// Keyed tags of ATP packets. Every member of a job (workers, servers, aggregating switches) holds
// the job key, and a switch seals the sums that it makes. So a tag proves that a packet comes from
// some member, and a forged parameter packet is dropped at the first member that it reaches.
//
// All members tag under one key derived from the job key, so that a switch keeps one key per job
// instead of one per worker. The nonce (12 bytes, in the packet) therefore names the sender: its
// number in the job, a mark that it draws when it starts, and a count that starts at random and
// goes up with every packet. Sequence numbers would not do as nonces: a retransmission repeats its
// sequence with another flag. Replays need no window here: the protocol stays exact under any
// duplication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/atp_packet.h"
#include "wire/authenticate.h"

namespace thalweg::wire {

// Identifies a sealer. No two sealers of one job ever have the same.
struct AtpOrigin {
  std::uint16_t member = 0;
  std::uint16_t mark = 0;         // random, drawn once per process
  std::uint64_t first_count = 0;  // random, drawn once per process
};

// Neither an AtpSealer nor an AtpVerifier is shared between threads: each thread that seals has an
// origin of its own.
class AtpSealer {
 public:
  AtpSealer(const JobKey& key, const AtpOrigin& origin);

  // Fills in the seal of a whole packet whose header was encoded with `keyed`.
  void seal(std::span<std::byte> packet);

 private:
  Gmac gmac_;
  std::uint32_t origin_;
  std::uint64_t count_;
};

class AtpVerifier {
 public:
  explicit AtpVerifier(const JobKey& key);

  // Whether the tag is right. Requires a packet that decode_atp_header() accepted, with `keyed`.
  [[nodiscard]] bool genuine(std::span<const std::byte> packet);

 private:
  Gmac gmac_;
};

}  // namespace thalweg::wire
