#include "wire/atp_packet.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <array>
#include <bit>
#include <cstring>
#include <type_traits>

#include "base/check.h"

namespace thalweg::wire {
namespace {

constexpr std::uint8_t kResendFlag = 1;
constexpr std::uint8_t kCollisionFlag = 2;
constexpr std::uint8_t kCongestedFlag = 4;
constexpr std::uint8_t kSaturatedFlag = 8;
constexpr std::uint8_t kKeyedFlag = 16;
constexpr std::uint8_t kAllFlags = 31;

static_assert(kAtpHeaderSize ==
              3 * sizeof(std::uint8_t) + sizeof(AtpHeader::level) + sizeof(AtpHeader::job) +
                  sizeof(AtpHeader::sequence) + sizeof(AtpHeader::workers) +
                  sizeof(AtpHeader::groups) + sizeof(AtpHeader::group) + sizeof(AtpHeader::fan_in) +
                  sizeof(AtpHeader::group_count) + sizeof(AtpHeader::exponent) +
                  sizeof(AtpHeader::next_exponent) + sizeof(AtpHeader::needed_exponent) +
                  sizeof(AtpHeader::elements) + sizeof(AtpHeader::check) + kAtpHeaderCheckSize);

// The header without its check, as numbers of 64 bits. Encoding and decoding go by way of these, so
// that the check needs not read back what was just written in smaller pieces, which a processor
// waits for.
constexpr std::size_t kNumbers = (kAtpHeaderSize - kAtpHeaderCheckSize) / sizeof(std::uint64_t);
static_assert(kNumbers * sizeof(std::uint64_t) + kAtpHeaderCheckSize == kAtpHeaderSize);
static_assert(std::endian::native == std::endian::little);
using Numbers = std::array<std::uint64_t, kNumbers>;

std::uint64_t number_of(const std::byte* packet, std::size_t i) {
  std::uint64_t number = 0;
  std::memcpy(&number, packet + i * sizeof(number), sizeof(number));
  return number;
}
Numbers numbers_of(const std::byte* packet) {
  Numbers numbers;
  for (std::size_t i = 0; i < kNumbers; ++i) numbers[i] = number_of(packet, i);
  return numbers;
}

// The weights of the header's 32-bit words in the header check. The program in the kernel has the
// same (switchd/xdp/atp_slot.bpf.h).
constexpr std::array<std::uint64_t, 2 * kNumbers> kWeights = {
    0xe220a8397b1dcdaf, 0x6e789e6aa1b965f5, 0x06c45d188009454f, 0xf88bb8a8724c81ed,
    0x1b39896a51a8749b, 0x53cb9f0c747ea2eb, 0x2c829abe1f4532e1, 0xc584133ac916ab3d,
    0x3ee5789041c98ac3, 0xf3b8488c368cb0a7};

// The upper half of the weighted sum, modulo 2^64. A changed bit, or two 16-bit words that changed
// places, change it; the unit tests try all of them. Other changes go unnoticed once in 2^32.
std::uint32_t header_check(const Numbers& numbers) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < kNumbers; ++i) {
    sum += (numbers[i] & 0xffff'ffff) * kWeights[2 * i] + (numbers[i] >> 32) * kWeights[2 * i + 1];
  }
  return static_cast<std::uint32_t>(sum >> 32);
}

#if defined(__x86_64__)
// The weights again, their lower and their upper halves in numbers of 64 bits.
struct HalfWeights {
  alignas(32) std::array<std::uint64_t, kWeights.size()> low;
  alignas(32) std::array<std::uint64_t, kWeights.size()> high;
};
constexpr HalfWeights kHalfWeights = [] {
  HalfWeights half{};
  for (std::size_t i = 0; i < kWeights.size(); ++i) {
    half.low[i] = kWeights[i] & 0xffff'ffff;
    half.high[i] = kWeights[i] >> 32;
  }
  return half;
}();

// The same by AVX2. Requires kAtpHeaderSize bytes.
__attribute__((target("avx2"))) std::uint32_t header_check_by_avx2(const std::byte* header) {
  const auto* const words = reinterpret_cast<const __m128i*>(header);
  const auto* const low = reinterpret_cast<const __m256i*>(kHalfWeights.low.data());
  const auto* const high = reinterpret_cast<const __m256i*>(kHalfWeights.high.data());
  const __m256i first = _mm256_cvtepu32_epi64(_mm_loadu_si128(words));
  const __m256i second = _mm256_cvtepu32_epi64(_mm_loadu_si128(words + 1));
  const __m128i third = _mm_cvtepu32_epi64(_mm_loadl_epi64(words + 2));
  const __m256i lows = _mm256_add_epi64(_mm256_mul_epu32(first, _mm256_load_si256(low)),
                                        _mm256_mul_epu32(second, _mm256_load_si256(low + 1)));
  const __m256i highs = _mm256_add_epi64(_mm256_mul_epu32(first, _mm256_load_si256(high)),
                                         _mm256_mul_epu32(second, _mm256_load_si256(high + 1)));
  const __m256i sums = _mm256_add_epi64(lows, _mm256_slli_epi64(highs, 32));
  const auto half_of = [](const __m256i* weights) {
    return reinterpret_cast<const __m128i*>(weights + 2);
  };
  const __m128i last =
      _mm_add_epi64(_mm_mul_epu32(third, _mm_load_si128(half_of(low))),
                    _mm_slli_epi64(_mm_mul_epu32(third, _mm_load_si128(half_of(high))), 32));
  const __m128i two = _mm_add_epi64(
      last, _mm_add_epi64(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
  const __m128i one = _mm_add_epi64(two, _mm_unpackhi_epi64(two, two));
  return static_cast<std::uint32_t>(static_cast<std::uint64_t>(_mm_cvtsi128_si64(one)) >> 32);
}
#endif

// The header check of a packet that arrived. In one that was just encoded, the wide loads would
// wait for the narrow stores.
std::uint32_t header_check_of(const std::byte* packet) {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) return header_check_by_avx2(packet);
#endif
  return header_check(numbers_of(packet));
}

void put_header(const Numbers& numbers, std::span<std::byte, kAtpHeaderSize> out) {
  const std::uint32_t check = header_check(numbers);
  std::memcpy(out.data(), numbers.data(), sizeof(numbers));
  std::memcpy(&out[sizeof(numbers)], &check, sizeof(check));
}

// A field of `numbers` from a bit on, as a field's value and back.
template <class T>
constexpr std::uint64_t at_bit(int bit, T value) {
  return std::uint64_t{static_cast<std::make_unsigned_t<T>>(value)} << bit;
}
template <class T>
constexpr T from_bit(int bit, std::uint64_t number) {
  return static_cast<T>(number >> bit);
}

std::uint8_t flags_of(const AtpHeader& header) {
  return static_cast<std::uint8_t>(
      (header.resend ? kResendFlag : 0) | (header.collision ? kCollisionFlag : 0) |
      (header.congested ? kCongestedFlag : 0) | (header.saturated ? kSaturatedFlag : 0) |
      (header.keyed ? kKeyedFlag : 0));
}

bool known(AtpKind kind) {
  switch (kind) {
    case AtpKind::kGradient:
    case AtpKind::kParameter:
    case AtpKind::kAbort:
    case AtpKind::kMissing:
    case AtpKind::kUpdate:
    case AtpKind::kResult:
      return true;
  }
  return false;
}

// The places of a group with this fan-in: one more where a server adds the gradients of its own
// worker itself. SwitchML has no such servers.
unsigned places_of(const AtpHeader& header) {
  const bool switchml = header.kind == AtpKind::kUpdate || header.kind == AtpKind::kResult;
  return switchml || header.fan_in == kAtpMostWorkersPerGroup ? header.fan_in : header.fan_in + 1U;
}

// The sets lie within the job, are not both empty, and name no worker twice.
bool sets_hold(const AtpHeader& header) {
  if (header.fan_in < 1 || header.fan_in > kAtpMostWorkersPerGroup) return false;
  if (header.group_count < 1 || header.group_count > kAtpMostGroups) return false;
  if (header.group >= header.group_count) return false;
  // There are at most fan_in + 1 places, so only the set of all of them can be too large.
  const unsigned places = places_of(header);
  if ((header.workers & ~atp_all(places)) != 0) return false;
  if (places > header.fan_in && header.workers == atp_all(places)) return false;
  if ((header.groups & ~atp_all(header.group_count)) != 0) return false;
  if (header.workers == 0) return header.groups != 0;
  return (header.groups & atp_bit(header.group)) == 0;
}

// The second level adds only whole groups; a part of a group must carry a flag with which it
// passes.
bool level_holds(const AtpHeader& header) {
  if (header.kind != AtpKind::kGradient) return header.level == 0;
  if (header.level > kAtpServerLevel) return false;
  const bool passing = header.resend || header.collision;
  if (header.level == kAtpFirstLevel) return header.groups == 0;
  return passing || header.workers == 0;
}

}  // namespace

WireError check_atp_header(const AtpHeader& header) {
  if (!known(header.kind)) return WireError::kKind;
  const bool up = header.kind == AtpKind::kGradient || header.kind == AtpKind::kUpdate;
  if (!up && (header.resend || header.collision)) return WireError::kReserved;
  if (!sets_hold(header) || !level_holds(header)) return WireError::kField;
  const bool empty = header.kind == AtpKind::kAbort || header.kind == AtpKind::kMissing;
  if (empty != (header.elements == 0)) return WireError::kLength;
  return header.elements > kAtpMostElements ? WireError::kLength : WireError::kNone;
}

void encode_atp_header(const AtpHeader& header, std::span<std::byte> out) {
  const WireError error = check_atp_header(header);
  CHECK(error == WireError::kNone, "a packet whose {} is wrong", name_of(error));
  const Numbers numbers = {
      at_bit(0, kAtpVersion) | at_bit(8, static_cast<std::uint8_t>(header.kind)) |
          at_bit(16, flags_of(header)) | at_bit(24, header.level) | at_bit(32, header.job),
      header.sequence, at_bit(0, header.workers) | at_bit(32, header.groups),
      at_bit(0, header.group) | at_bit(8, header.fan_in) | at_bit(16, header.group_count) |
          at_bit(24, header.exponent) | at_bit(32, header.next_exponent) |
          at_bit(40, header.needed_exponent) | at_bit(48, header.elements),
      header.check};
  put_header(numbers, out.first<kAtpHeaderSize>());
}

void put_atp_header_check(std::span<std::byte> packet) {
  put_header(numbers_of(packet.data()), packet.first<kAtpHeaderSize>());
}

std::uint32_t atp_job_of(std::span<const std::byte> packet) {
  if (packet.size() < kAtpHeaderSize) return 0;
  return from_bit<std::uint32_t>(32, number_of(packet.data(), 0));
}

WireError decode_atp_header(std::span<const std::byte> packet, AtpHeader& out) {
  if (packet.size() < kAtpHeaderSize) return WireError::kShort;
  const std::byte* const bytes = packet.data();
  if (static_cast<std::uint8_t>(bytes[0]) != kAtpVersion) return WireError::kVersion;
  std::uint32_t sent = 0;
  std::memcpy(&sent, bytes + sizeof(Numbers), sizeof(sent));
  if (sent != header_check_of(bytes)) return WireError::kChecksum;
  const std::uint64_t about = number_of(bytes, 0);
  const std::uint64_t sets = number_of(bytes, 2);
  const std::uint64_t rest = number_of(bytes, 3);
  out.kind = static_cast<AtpKind>(from_bit<std::uint8_t>(8, about));
  const auto flags = from_bit<std::uint8_t>(16, about);
  out.level = from_bit<std::uint8_t>(24, about);
  out.job = from_bit<std::uint32_t>(32, about);
  out.sequence = number_of(bytes, 1);
  out.workers = from_bit<std::uint32_t>(0, sets);
  out.groups = from_bit<std::uint32_t>(32, sets);
  out.group = from_bit<std::uint8_t>(0, rest);
  out.fan_in = from_bit<std::uint8_t>(8, rest);
  out.group_count = from_bit<std::uint8_t>(16, rest);
  out.exponent = from_bit<std::int8_t>(24, rest);
  out.next_exponent = from_bit<std::int8_t>(32, rest);
  out.needed_exponent = from_bit<std::int8_t>(40, rest);
  out.elements = from_bit<std::uint16_t>(48, rest);
  out.check = number_of(bytes, 4);
  if (!known(out.kind)) return WireError::kKind;
  if ((flags & ~kAllFlags) != 0) return WireError::kReserved;
  out.resend = (flags & kResendFlag) != 0;
  out.collision = (flags & kCollisionFlag) != 0;
  out.congested = (flags & kCongestedFlag) != 0;
  out.saturated = (flags & kSaturatedFlag) != 0;
  out.keyed = (flags & kKeyedFlag) != 0;
  if (const WireError error = check_atp_header(out); error != WireError::kNone) return error;
  return packet.size() == atp_packet_size(out) ? WireError::kNone : WireError::kLength;
}

std::span<const std::byte> atp_payload(std::span<const std::byte> packet, const AtpHeader& header) {
  return packet.subspan(atp_overhead(header.keyed), header.elements * sizeof(std::int32_t));
}

}  // namespace thalweg::wire
