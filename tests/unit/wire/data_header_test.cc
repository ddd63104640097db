#include "wire/data_header.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/prng.h"

namespace thalweg::wire {
namespace {

DataHeader random_header(Prng& prng) {
  DataHeader header;
  header.job = prng.next();
  header.sequence = prng.next();
  header.transfer = static_cast<std::uint32_t>(prng.next());
  header.segment = static_cast<std::uint32_t>(prng.below(1ULL << 31));
  header.sent_us = static_cast<std::uint32_t>(prng.next());
  header.length = static_cast<std::uint16_t>(1 + prng.below(65535));
  header.tag.priority = static_cast<std::uint8_t>(prng.below(kPriorityCount));
  header.tag.important = prng.chance(0.5);
  header.retransmission = prng.chance(0.5);
  header.keyed = prng.chance(0.5);
  return header;
}

std::vector<std::byte> packet_of(const DataHeader& header) {
  std::vector<std::byte> packet(data_overhead(header.keyed) + header.length, std::byte{0x5a});
  encode_data_header(header, packet);
  if (!header.keyed) {
    const auto head = std::span(packet).first(data_overhead(false));
    put_checksum(head, std::span(packet).subspan(head.size()));
  }
  return packet;
}

WireError decode(const std::vector<std::byte>& packet) {
  DataHeader header;
  return decode_data_header(packet, header);
}

TEST(DataHeader, encode__bytes_as_documented) {
  DataHeader header;
  header.job = 0x1817161514131211;
  header.sequence = 0x2827262524232221;
  header.transfer = 0x34333231;
  header.segment = 0x44434241;
  header.sent_us = 0x54535251;
  header.length = 2;
  header.tag = {.priority = 5, .important = true};
  header.retransmission = true;
  const std::vector<std::uint8_t> expected = {
      4,    'D',  1,    0x0d, 0x31, 0x32, 0x33, 0x34, 0x11, 0x12, 0x13, 0x14,
      0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24, 0x25, 0x26, 0x27, 0x28,
      0x41, 0x42, 0x43, 0x44, 0x51, 0x52, 0x53, 0x54, 2,    0,    0,    0,  // header
      0xae, 0x2a, 0xe9, 0x0f, 0x5a, 0x5a};                                  // checksum, payload
  std::vector<std::uint8_t> bytes;
  for (const std::byte byte : packet_of(header)) bytes.push_back(static_cast<std::uint8_t>(byte));
  EXPECT_EQ(bytes, expected);
}

TEST(DataHeader, decode__gives_what_was_encoded) {
  Prng prng(1);
  for (int i = 0; i < 20'000; ++i) {
    SCOPED_TRACE(i);
    const DataHeader header = random_header(prng);
    const std::vector<std::byte> packet = packet_of(header);
    DataHeader decoded;
    ASSERT_EQ(decode_data_header(packet, decoded), WireError::kNone);
    ASSERT_EQ(decoded, header);
    ASSERT_TRUE(header.keyed || data_is_intact(packet));
    const auto payload = data_payload(packet, decoded);
    ASSERT_EQ(payload.size(), header.length);
    ASSERT_EQ(payload.data() + payload.size(), packet.data() + packet.size());
  }
}

TEST(DataHeader, decode__every_truncation_is_refused) {
  DataHeader header;
  header.length = 30;
  for (const bool keyed : {false, true}) {
    header.keyed = keyed;
    const std::vector<std::byte> whole = packet_of(header);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::vector<std::byte> part(whole.begin(),
                                        whole.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_EQ(decode(part), size < kDataHeaderSize ? WireError::kShort : WireError::kLength);
    }
    std::vector<std::byte> longer = whole;
    longer.push_back(std::byte{0});
    EXPECT_EQ(decode(longer), WireError::kLength);
  }
}

// Swapped words of 16 bits are what the checksums of UDP and TCP do not notice.
TEST(DataHeader, data_is_intact__finds_every_flipped_bit_and_swapped_words) {
  Prng prng(2);
  DataHeader header = random_header(prng);
  header.keyed = false;
  header.session = 0;
  header.length = 64;
  std::vector<std::byte> good = packet_of(header);
  for (std::size_t i = data_overhead(false); i < good.size(); ++i) {
    good[i] = static_cast<std::byte>(prng.next());
  }
  put_checksum(std::span(good).first(data_overhead(false)),
               std::span(good).subspan(data_overhead(false)));
  ASSERT_TRUE(data_is_intact(good));
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    EXPECT_FALSE(data_is_intact(bad)) << bit;
  }
  for (std::size_t a = 0; a + 1 < good.size(); a += 2) {
    for (std::size_t b = a + 2; b + 1 < good.size(); b += 2) {
      std::vector<std::byte> bad = good;
      std::swap(bad[a], bad[b]);
      std::swap(bad[a + 1], bad[b + 1]);
      EXPECT_EQ(data_is_intact(bad), bad == good) << a << ", " << b;
    }
  }
}

TEST(DataHeader, data_is_intact__zero_is_no_checksum) {
  DataHeader header;
  header.length = 8;
  std::vector<std::byte> packet = packet_of(header);
  std::fill_n(packet.begin() + kDataHeaderSize, kChecksumSize, std::byte{0});
  packet.back() ^= std::byte{1};
  EXPECT_TRUE(data_is_intact(packet));
}

TEST(Checksum, crc32c__as_published) {
  constexpr std::string_view kDigits = "123456789";
  const auto bytes = std::as_bytes(std::span(kDigits));
  EXPECT_EQ(crc32c(bytes), 0xe3069283U);
  EXPECT_EQ(crc32c(bytes.first(4), bytes.subspan(4)), 0xe3069283U);
  EXPECT_EQ(crc32c({}), 0U);
}

TEST(DataHeader, decode__names_what_is_wrong) {
  DataHeader header;
  header.length = 1;
  const std::vector<std::byte> good = packet_of(header);
  ASSERT_EQ(decode(good), WireError::kNone);
  const auto with = [&](std::size_t place, int value) {
    std::vector<std::byte> packet = good;
    packet[place] = static_cast<std::byte>(value);
    return decode(packet);
  };
  EXPECT_EQ(with(0, 2), WireError::kVersion);
  EXPECT_EQ(with(1, 'C'), WireError::kKind);
  for (int bit = 2; bit < 8; ++bit) EXPECT_EQ(with(2, 1 << bit), WireError::kReserved);
  for (int bit = 4; bit < 8; ++bit) EXPECT_EQ(with(3, 1 << bit), WireError::kReserved);
  EXPECT_EQ(with(34, 1), WireError::kReserved);
  EXPECT_EQ(with(35, 1), WireError::kReserved);
  EXPECT_EQ(with(27, 0x80), WireError::kField);
  EXPECT_EQ(with(32, 0), WireError::kLength);
  EXPECT_EQ(with(2, 2), WireError::kLength);  // keyed, and too short for the tag
}

TEST(WireClock, wire_clock__whole_microseconds_that_wrap) {
  const auto at = [](std::int64_t us) { return wire_clock(Time() + Duration::microseconds(us)); };
  EXPECT_EQ(at(0), 0U);
  EXPECT_EQ(at(7), 7U);
  EXPECT_EQ(wire_clock(Time() + Duration::nanoseconds(7999)), 7U);
  EXPECT_EQ(at((1LL << 32) + 5), 5U);
  EXPECT_EQ(wire_clock_difference(at((1LL << 32) + 5), at((1LL << 32) - 5)), 10);
  EXPECT_EQ(wire_clock_difference(at(3), at(10)), -7);
}

}  // namespace
}  // namespace thalweg::wire
