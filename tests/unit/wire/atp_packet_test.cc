#include "wire/atp_packet.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/prng.h"
#include "wire/atp_seal.h"

namespace thalweg::wire {
namespace {

AtpHeader random_atp_header(Prng& prng) {
  AtpHeader header;
  do {
    constexpr std::array kKinds = {AtpKind::kGradient, AtpKind::kParameter, AtpKind::kAbort,
                                   AtpKind::kUpdate, AtpKind::kResult};
    header.kind = kKinds[prng.below(kKinds.size())];
    header.level = static_cast<std::uint8_t>(prng.below(3));
    header.job = static_cast<std::uint32_t>(prng.next());
    header.sequence = prng.next();
    header.fan_in = static_cast<std::uint8_t>(1 + prng.below(32));
    header.group_count = static_cast<std::uint8_t>(1 + prng.below(32));
    header.group = static_cast<std::uint8_t>(prng.below(header.group_count));
    header.workers =
        static_cast<std::uint32_t>(prng.next()) & atp_all(std::min(header.fan_in + 1U, 32U));
    header.groups = static_cast<std::uint32_t>(prng.next()) & atp_all(header.group_count);
    if (prng.chance(0.5)) header.workers = 0;
    if (prng.chance(0.5)) header.groups = 0;
    header.exponent = static_cast<std::int8_t>(prng.next());
    header.next_exponent = static_cast<std::int8_t>(prng.next());
    header.needed_exponent = static_cast<std::int8_t>(prng.next());
    header.elements = header.kind == AtpKind::kAbort
                          ? std::uint16_t{0}
                          : static_cast<std::uint16_t>(1 + prng.below(kAtpMostElements));
    header.check = prng.next();
    header.resend = prng.chance(0.3);
    header.collision = prng.chance(0.3);
    header.congested = prng.chance(0.5);
    header.saturated = prng.chance(0.5);
    header.keyed = prng.chance(0.5);
  } while (check_atp_header(header) != WireError::kNone);
  return header;
}

AtpHeader gradient() {
  AtpHeader header;
  header.fan_in = 3;
  header.group_count = 2;
  header.workers = 0b010;
  header.elements = 2;
  return header;
}

std::vector<std::byte> atp_packet_of(const AtpHeader& header) {
  std::vector<std::byte> packet(atp_packet_size(header), std::byte{0x5a});
  encode_atp_header(header, packet);
  return packet;
}

WireError decode_atp(std::span<const std::byte> packet) {
  AtpHeader header;
  return decode_atp_header(packet, header);
}

TEST(AtpPacket, encode__bytes_as_documented) {
  AtpHeader header;
  header.level = 1;
  header.job = 0x14131211;
  header.sequence = 0x2827262524232221;
  header.workers = 0x00000003;
  header.groups = 0x00000005;
  header.group = 1;
  header.fan_in = 4;
  header.group_count = 3;
  header.exponent = -2;
  header.next_exponent = 7;
  header.needed_exponent = -3;
  header.elements = 1;
  header.resend = true;
  header.congested = true;
  header.check = 0x3837363534333231;
  const std::vector<std::uint8_t> expected = {
      6,    'G',  5,    1,    0x11, 0x12, 0x13, 0x14, 0x21, 0x22, 0x23, 0x24,
      0x25, 0x26, 0x27, 0x28, 3,    0,    0,    0,    5,    0,    0,    0,
      1,    4,    3,    0xfe, 7,    0xfd, 1,    0,    0x31, 0x32, 0x33, 0x34,
      0x35, 0x36, 0x37, 0x38, 0x24, 0x25, 0xa4, 0x66, 0x5a, 0x5a, 0x5a, 0x5a};
  std::vector<std::uint8_t> bytes;
  for (const std::byte byte : atp_packet_of(header))
    bytes.push_back(static_cast<std::uint8_t>(byte));
  EXPECT_EQ(bytes, expected);
}

TEST(AtpPacket, decode__gives_what_was_encoded) {
  Prng prng(1);
  for (int i = 0; i < 5'000; ++i) {
    SCOPED_TRACE(i);
    const AtpHeader header = random_atp_header(prng);
    const std::vector<std::byte> packet = atp_packet_of(header);
    AtpHeader decoded;
    ASSERT_EQ(decode_atp_header(packet, decoded), WireError::kNone);
    ASSERT_EQ(decoded, header);
    const auto payload = atp_payload(packet, decoded);
    ASSERT_EQ(payload.size(), header.elements * 4U);
    ASSERT_EQ(payload.data() + payload.size(), packet.data() + packet.size());
  }
}

TEST(AtpPacket, decode__every_truncation_is_refused) {
  for (const bool keyed : {false, true}) {
    AtpHeader header = gradient();
    header.keyed = keyed;
    std::vector<std::byte> packet = atp_packet_of(header);
    for (std::size_t size = 0; size < packet.size(); ++size) {
      EXPECT_EQ(decode_atp(std::span(packet).first(size)),
                size < kAtpHeaderSize ? WireError::kShort : WireError::kLength);
    }
    packet.push_back(std::byte{0});
    EXPECT_EQ(decode_atp(packet), WireError::kLength);
  }
}

TEST(AtpPacket, decode__names_what_is_wrong) {
  const std::vector<std::byte> good = atp_packet_of(gradient());
  ASSERT_EQ(decode_atp(good), WireError::kNone);
  const auto with = [&](std::size_t place, int value) {
    std::vector<std::byte> packet = good;
    packet[place] = static_cast<std::byte>(value);
    put_atp_header_check(packet);
    return decode_atp(packet);
  };
  EXPECT_EQ(with(0, 5), WireError::kVersion);
  EXPECT_EQ(with(1, 'D'), WireError::kKind);
  for (int bit = 5; bit < 8; ++bit) EXPECT_EQ(with(2, 1 << bit), WireError::kReserved);
  EXPECT_EQ(with(3, 3), WireError::kField);  // no such level
  EXPECT_EQ(with(3, 1), WireError::kField);  // a single contribution at the second level
  // A group may have one worker more than its fan-in, whose gradient its own server adds.
  EXPECT_EQ(with(16, 0b1000), WireError::kNone);
  EXPECT_EQ(with(16, 0b10000), WireError::kField);  // a worker beyond that
  EXPECT_EQ(with(16, 0b1111), WireError::kField);   // more workers than the fan-in
  EXPECT_EQ(with(16, 0), WireError::kField);        // no contribution
  EXPECT_EQ(with(20, 0b100), WireError::kField);    // a group beyond the groups
  EXPECT_EQ(with(20, 0b010), WireError::kField);    // a whole group at the first level
  EXPECT_EQ(with(24, 2), WireError::kField);        // a group that does not exist
  EXPECT_EQ(with(25, 0), WireError::kField);        // fan-in 0
  EXPECT_EQ(with(25, 33), WireError::kField);
  EXPECT_EQ(with(26, 0), WireError::kField);
  EXPECT_EQ(with(26, 33), WireError::kField);
  EXPECT_EQ(with(30, 0), WireError::kLength);
  EXPECT_EQ(with(31, 0x80), WireError::kLength);
  EXPECT_EQ(with(1, 'A'), WireError::kLength);  // an abort has no elements
}

TEST(AtpPacket, decode__every_flipped_bit_of_the_header_is_found) {
  Prng prng(2);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::byte> packet = atp_packet_of(random_atp_header(prng));
    for (std::size_t bit = 0; bit < kAtpHeaderSize * 8; ++bit) {
      packet[bit / 8] ^= std::byte{1} << (bit % 8);
      ASSERT_EQ(decode_atp(packet), bit < 8 ? WireError::kVersion : WireError::kChecksum) << bit;
      packet[bit / 8] ^= std::byte{1} << (bit % 8);
    }
  }
}

// With the first words of the elements, so that words change places across the header's end, too.
TEST(AtpPacket, decode__every_two_words_of_the_header_that_changed_places_are_found) {
  Prng prng(3);
  for (int i = 0; i < 200; ++i) {
    AtpHeader header = random_atp_header(prng);
    header.keyed = false;
    std::vector<std::byte> packet = atp_packet_of(header);
    const std::size_t end = std::min<std::size_t>(packet.size(), kAtpHeaderSize + 8);
    for (std::size_t a = 0; a < kAtpHeaderSize; a += 2) {
      for (std::size_t b = a + 2; b < end; b += 2) {
        const auto swap = [&] { std::swap_ranges(&packet[a], &packet[a] + 2, &packet[b]); };
        if (packet[a] == packet[b] && packet[a + 1] == packet[b + 1]) continue;
        swap();
        ASSERT_NE(decode_atp(packet), WireError::kNone) << a << " and " << b;
        swap();
      }
    }
  }
}

TEST(AtpPacket, check__nobody_twice_and_flags_only_on_the_way_up) {
  AtpHeader header = gradient();
  header.level = kAtpSecondLevel;
  header.resend = true;
  header.groups = 0b10;
  EXPECT_EQ(check_atp_header(header), WireError::kNone);
  header.groups = 0b01;
  EXPECT_EQ(check_atp_header(header), WireError::kField);  // group 0 whole and in part
  header = gradient();
  header.kind = AtpKind::kParameter;
  EXPECT_EQ(check_atp_header(header), WireError::kNone);
  header.resend = true;
  EXPECT_EQ(check_atp_header(header), WireError::kReserved);
}

JobKey atp_key_of(int seed) {
  std::array<std::byte, kJobKeySize> bytes{};
  bytes[3] = static_cast<std::byte>(seed);
  return JobKey(bytes);
}

// A server that is a worker may add its own gradients itself, so that the set has one place more
// than the fan-in, but never one member more.
TEST(AtpPacket, check__as_many_workers_as_the_fan_in_at_most) {
  Prng prng(2);
  for (int i = 0; i < 20'000; ++i) {
    AtpHeader header = gradient();
    header.kind = prng.chance(0.5) ? AtpKind::kGradient : AtpKind::kUpdate;
    header.fan_in = static_cast<std::uint8_t>(1 + prng.below(kAtpMostWorkersPerGroup));
    const unsigned places =
        std::min(header.fan_in + (header.kind == AtpKind::kGradient ? 1U : 0U), 32U);
    // Sets that are nearly full, so that many are full or too large.
    header.workers = atp_all(std::min<unsigned>(places + 1, 32));
    for (int holes = static_cast<int>(prng.below(3)); holes > 0; --holes) {
      header.workers &= ~atp_bit(static_cast<unsigned>(prng.below(places + 1) % 32));
    }
    const bool may = header.workers != 0 && (header.workers & ~atp_all(places)) == 0 &&
                     std::popcount(header.workers) <= header.fan_in;
    ASSERT_EQ(check_atp_header(header) == WireError::kNone, may)
        << header.workers << " of " << int{header.fan_in};
  }
}

TEST(AtpPacket, repetition__goes_to_the_same_server) {
  for (const std::uint64_t sequence : {std::uint64_t{0}, std::uint64_t{1} << 60}) {
    EXPECT_FALSE(atp_is_repetition(sequence));
    EXPECT_EQ(atp_first_time(sequence), sequence);
    const std::uint64_t again = kAtpRepetition + sequence;
    EXPECT_TRUE(atp_is_repetition(again));
    EXPECT_EQ(atp_first_time(again), sequence);
    for (std::uint32_t servers = 1; servers <= kAtpMostServersOfRepetitions; ++servers) {
      EXPECT_EQ(again % servers, sequence % servers) << servers;
    }
  }
}

TEST(AtpSeal, genuine__any_member_and_nobody_else) {
  AtpHeader header = gradient();
  header.keyed = true;
  std::vector<std::byte> packet = atp_packet_of(header);
  AtpVerifier verifier(atp_key_of(1));
  AtpVerifier other(atp_key_of(2));
  for (const std::uint16_t member : {std::uint16_t{1}, std::uint16_t{2}}) {
    AtpSealer sealer(atp_key_of(1), {member, 7, 100});
    sealer.seal(packet);
    const std::vector<std::byte> first = packet;
    EXPECT_TRUE(verifier.genuine(packet));
    EXPECT_FALSE(other.genuine(packet));
    sealer.seal(packet);
    EXPECT_NE(first, packet) << "a nonce twice";
    EXPECT_TRUE(verifier.genuine(packet));
  }
}

TEST(AtpSeal, genuine__every_changed_bit_is_a_forgery) {
  AtpHeader header = gradient();
  header.keyed = true;
  std::vector<std::byte> packet = atp_packet_of(header);
  AtpSealer(atp_key_of(1), {}).seal(packet);
  AtpVerifier verifier(atp_key_of(1));
  for (std::size_t i = 0; i < packet.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      packet[i] ^= static_cast<std::byte>(1 << bit);
      EXPECT_FALSE(verifier.genuine(packet)) << i;
      packet[i] ^= static_cast<std::byte>(1 << bit);
    }
  }
  EXPECT_TRUE(verifier.genuine(packet));
}

}  // namespace
}  // namespace thalweg::wire
