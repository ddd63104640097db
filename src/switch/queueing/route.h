// The second stage of the switch pipeline decides which of several equally good next hops a packet
// takes. Each switch has one PathChooser.
//
//   kFlowHash   A hash of the flow, salted by the switch, decides. The salt keeps the choices of
//               successive switches independent; without it, the flows that reach a second-tier
//               switch are those whose hash picked it, and all of them pick the same port there.
//   kPerPacket  Each packet takes a random next hop ("spraying").
//   kLabel      The sender chose the path. The label is a number in mixed radix: a switch with n
//               next hops takes the label modulo n and passes the label divided by n on. So the
//               labels 0 … P−1 name the P paths between two hosts, each once, if every path has the
//               same numbers of choices.
#pragma once

#include <cstdint>

#include "base/prng.h"

namespace thalweg::switches {

enum class PathChoice : std::uint8_t { kFlowHash, kPerPacket, kLabel };

// Returns the choice among `count` next hops that a label names at this switch, and leaves in
// `label` the rest for the following switches. Requires count > 0.
inline std::uint32_t take_label(std::uint32_t& label, std::uint32_t count) {
  const std::uint32_t index = label % count;
  label /= count;
  return index;
}

class PathChooser {
 public:
  // `prng` supplies the salt and, for kPerPacket, the choices.
  PathChooser(PathChoice choice, Prng prng) : prng_(prng), salt_(prng_.next()), choice_(choice) {}

  // Returns an index below `count`. `key` is the hash of the flow, or the label, which take_label()
  // then reduces. Requires count > 0.
  std::uint32_t choose(std::uint32_t& key, std::uint32_t count) {
    if (count == 1) return 0;
    switch (choice_) {
      case PathChoice::kFlowHash:
        return scale(mix(key ^ salt_), count);
      case PathChoice::kPerPacket:
        return scale(prng_.next(), count);
      case PathChoice::kLabel:
        return take_label(key, count);
    }
    return 0;
  }

 private:
  // The finalizer of MurmurHash3 (Appleby): every bit of the input reaches every bit of the result.
  static constexpr std::uint64_t mix(std::uint64_t x) {
    x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
    x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
    return x ^ (x >> 33);
  }
  // The upper bits of x, scaled to [0, count) without a division.
  static constexpr std::uint32_t scale(std::uint64_t x, std::uint32_t count) {
    return static_cast<std::uint32_t>(((x >> 32) * count) >> 32);
  }

  Prng prng_;
  std::uint64_t salt_;
  PathChoice choice_;
};

}  // namespace thalweg::switches
