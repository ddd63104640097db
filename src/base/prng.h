// Prng: a seeded random generator (xoshiro256**, Blackman and Vigna), the only source of randomness
// in the pure layers. A seed gives the same sequence on every machine and standard library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace thalweg {

// The step of SplitMix64 (Steele, Lea and Flood), which is 2^64 divided by the golden ratio, and
// its finalizer, in which every bit of the input affects every bit of the result.
inline constexpr std::uint64_t kGoldenStep = 0x9e3779b97f4a7c15;

constexpr std::uint64_t mix_bits(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class Prng {
 public:
  explicit Prng(std::uint64_t seed);

  // 64 random bits.
  std::uint64_t next();

  // Uniform in [0, bound), without modulo bias. Requires bound > 0.
  std::uint64_t below(std::uint64_t bound);

  // Uniform in [0, 1).
  double real();

  // True with the given probability.
  bool chance(double probability) { return real() < probability; }

  // An independent generator for a named part of the work, so that adding draws in one part does
  // not change another.
  [[nodiscard]] Prng fork(std::uint64_t stream) const;

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) {
      std::swap(items[i - 1], items[static_cast<std::size_t>(below(i))]);
    }
  }

 private:
  std::array<std::uint64_t, 4> state_;
};

}  // namespace thalweg
