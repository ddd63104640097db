// AtpWorkerSet: some of the workers of a job, as one word of bits for each group, the form that
// packets have (docs/protocol-atp.md, "A packet").
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "wire/atp_packet.h"

namespace thalweg::proto {

class AtpWorkerSet {
 public:
  AtpWorkerSet() = default;
  // All workers of a job. `groups`: the number of workers in each group.
  static AtpWorkerSet all(std::span<const std::uint8_t> groups) {
    AtpWorkerSet set;
    for (std::size_t g = 0; g < groups.size(); ++g) set.words_[g] = wire::atp_all(groups[g]);
    return set;
  }
  // The workers whose contributions a gradient holds, or for which a parameter is, or which an
  // abort misses.
  static AtpWorkerSet of(const wire::AtpHeader& header, std::span<const std::uint8_t> groups) {
    AtpWorkerSet set;
    for (unsigned g = 0; g < groups.size(); ++g) {
      const std::uint32_t whole = wire::atp_all(groups[g]);
      if ((header.groups & wire::atp_bit(g)) != 0) {
        set.words_[g] = whole;
      } else if (g == header.group) {
        set.words_[g] = header.workers & whole;
      }
    }
    return set;
  }
  static AtpWorkerSet one(std::size_t group, unsigned index) {
    AtpWorkerSet set;
    set.words_[group] = wire::atp_bit(index);
    return set;
  }

  // The workers of one group, one bit each.
  [[nodiscard]] std::uint32_t of_group(std::size_t group) const { return words_[group]; }
  [[nodiscard]] bool empty() const { return *this == AtpWorkerSet(); }
  [[nodiscard]] int count() const {
    int count = 0;
    for (const std::uint32_t word : words_) count += std::popcount(word);
    return count;
  }
  bool operator==(const AtpWorkerSet&) const = default;
  friend AtpWorkerSet operator|(AtpWorkerSet a, const AtpWorkerSet& b) {
    std::ranges::transform(a.words_, b.words_, a.words_.begin(), std::bit_or());
    return a;
  }
  friend AtpWorkerSet operator&(AtpWorkerSet a, const AtpWorkerSet& b) {
    std::ranges::transform(a.words_, b.words_, a.words_.begin(), std::bit_and());
    return a;
  }
  // Those of `a` that are not in `b`.
  friend AtpWorkerSet operator-(AtpWorkerSet a, const AtpWorkerSet& b) {
    std::ranges::transform(a.words_, b.words_, a.words_.begin(),
                           [](std::uint32_t x, std::uint32_t y) { return x & ~y; });
    return a;
  }

 private:
  std::array<std::uint32_t, wire::kAtpMostGroups> words_ = {};
};

}  // namespace thalweg::proto
