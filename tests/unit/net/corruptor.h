// A network path that changes bytes, as a faulty switch or card does behind the checksums of
// Ethernet and TCP: everything arrives, in order, but some 16-bit words have changed places or a
// bit is wrong.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/prng.h"
#include "net/io/test_changes.h"
#include "net/relay.h"

namespace thalweg::net {

struct Corruption {
  bool swaps_words = true;     // false: flips a bit
  std::uint64_t one_in = 100;  // reads
  std::uint64_t seed = 0;
};

inline constexpr std::size_t kCorruptorWord = 2;

// Swaps the word with another that differs from it, looked for from `from` on. False: all words
// are the same.
inline bool swap_word(std::span<std::byte> bytes, std::size_t word, std::size_t from) {
  const std::size_t words = bytes.size() / kCorruptorWord;
  const auto at = [&](std::size_t w) { return bytes.subspan(w * kCorruptorWord, kCorruptorWord); };
  for (std::size_t i = 0; i < words; ++i) {
    const std::size_t other = (from + i) % words;
    if (std::ranges::equal(at(word), at(other))) continue;
    std::ranges::swap_ranges(at(word), at(other));
    return true;
  }
  return false;
}

// Flips a bit or swaps two words. Returns whether the bytes are others now.
inline bool corrupt(std::span<std::byte> bytes, const Corruption& corruption, Prng& prng) {
  const std::size_t words = bytes.size() / kCorruptorWord;
  if (words < 2) return false;
  const std::size_t first = prng.below(words);
  if (corruption.swaps_words) return swap_word(bytes, first, prng.below(words));
  bytes[prng.below(bytes.size())] ^= std::byte{1} << static_cast<int>(prng.below(8));
  return true;
}

// Changes one UDP packet in `one_in`, of all sockets that are made in the caller's ScopedChanges.
class PacketCorruptor {
 public:
  explicit PacketCorruptor(const Corruption& corruption)
      : corruption_(corruption), prng_(corruption.seed) {}

  [[nodiscard]] ChangePacket changes() {
    return [this](std::span<std::byte> packet) {
      const std::lock_guard lock(mutex_);
      if (prng_.below(corruption_.one_in) == 0 && corrupt(packet, corruption_, prng_)) ++changed_;
    };
  }
  // Packets that were changed so far.
  [[nodiscard]] int changed() {
    const std::lock_guard lock(mutex_);
    return changed_;
  }

 private:
  Corruption corruption_;
  std::mutex mutex_;
  Prng prng_;
  int changed_ = 0;
};

// The filters of a Relay.
class Corruptor {
 public:
  explicit Corruptor(const Corruption& corruption) : corruption_(corruption) {}

  // Reads whose bytes were changed so far.
  [[nodiscard]] int changed() const { return *changed_; }

  // Filters with a seed of their own. They may outlive the corruptor.
  Relay::MakeFilter filters() {
    corruption_.seed = mix_bits(corruption_.seed);
    return [corruption = corruption_, changed = changed_](std::size_t number, bool forth) {
      Prng prng(corruption.seed + 2 * number + (forth ? 1 : 2));
      return [corruption, changed, prng, passed = std::size_t{0}](auto& bytes) mutable {
        const std::size_t spared = std::min(bytes.size(), kSpared - std::min(kSpared, passed));
        passed += bytes.size();
        if (prng.below(corruption.one_in) == 0 &&
            corrupt(std::span(bytes).subspan(spared), corruption, prng)) {
          ++*changed;
        }
        return true;
      };
    };
  }

 private:
  // The beginning of a stream, where ranks greet each other, stays as it is.
  static constexpr std::size_t kSpared = 256;

  Corruption corruption_;
  std::shared_ptr<std::atomic<int>> changed_ = std::make_shared<std::atomic<int>>(0);
};

}  // namespace thalweg::net
