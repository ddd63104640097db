#include "wire/atp_seal.h"

#include <algorithm>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::wire {
namespace {

constexpr std::size_t kNoncePlace = kAtpHeaderSize;
constexpr std::size_t kTagPlace = atp_overhead(true) - kKeyedTagSize;
static_assert(kTagPlace - kNoncePlace == sizeof(std::uint32_t) + sizeof(std::uint64_t));

// The tag covers the header, the nonce after it, and the elements.
KeyedTag tag_of(Gmac& gmac, std::span<const std::byte> packet) {
  CHECK(packet.size() >= atp_overhead(true));
  ByteReader nonce(packet.subspan(kNoncePlace, kTagPlace - kNoncePlace));
  const auto origin = nonce.get<std::uint32_t>();
  const auto count = nonce.get<std::uint64_t>();
  return gmac.tag(origin, count, packet.first(kTagPlace), packet.subspan(atp_overhead(true)));
}

}  // namespace

AtpSealer::AtpSealer(const JobKey& key, const AtpOrigin& origin)
    : gmac_(key, KeyScope(), KeyUse::kAggregation),
      origin_(std::uint32_t{origin.member} << 16 | origin.mark),
      count_(origin.first_count) {}

void AtpSealer::seal(std::span<std::byte> packet) {
  CHECK(packet.size() >= atp_overhead(true));
  ByteWriter nonce(packet.subspan(kNoncePlace, kTagPlace - kNoncePlace));
  nonce.put(origin_);
  nonce.put(count_++);
  std::ranges::copy(tag_of(gmac_, packet), packet.begin() + kTagPlace);
}

AtpVerifier::AtpVerifier(const JobKey& key) : gmac_(key, KeyScope(), KeyUse::kAggregation) {}

bool AtpVerifier::genuine(std::span<const std::byte> packet) {
  return same_secret(tag_of(gmac_, packet), packet.subspan(kTagPlace, kKeyedTagSize));
}

}  // namespace thalweg::wire
