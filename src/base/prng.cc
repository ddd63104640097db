#include "base/prng.h"

#include <bit>

#include "base/check.h"
#include "base/int128.h"

namespace thalweg {
namespace {

// SplitMix64: spreads a seed over the whole state, so that close seeds give unrelated sequences.
std::uint64_t split_mix(std::uint64_t& x) {
  x += kGoldenStep;
  return mix_bits(x);
}

}  // namespace

Prng::Prng(std::uint64_t seed) : state_{} {
  for (std::uint64_t& word : state_) word = split_mix(seed);
}

std::uint64_t Prng::next() {
  const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
  const std::uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = std::rotl(state_[3], 45);
  return result;
}

std::uint64_t Prng::below(std::uint64_t bound) {
  CHECK(bound > 0);
  // Lemire's multiply-and-shift: rejects the draws that would favour some values.
  const std::uint64_t threshold = -bound % bound;
  while (true) {
    const auto product = static_cast<UInt128>(next()) * bound;
    if (static_cast<std::uint64_t>(product) >= threshold) {
      return static_cast<std::uint64_t>(product >> 64);
    }
  }
}

double Prng::real() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

Prng Prng::fork(std::uint64_t stream) const {
  std::uint64_t mix = state_[0] ^ std::rotl(state_[3], 21) ^ (stream * 0xd1342543de82ef95);
  return Prng(split_mix(mix));
}

}  // namespace thalweg
