// A seeded random generator (xoshiro256**, Blackman and Vigna): the only source of randomness in
// the pure layers. Same seed, same sequence, on every machine and standard library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>

namespace thalweg {

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
