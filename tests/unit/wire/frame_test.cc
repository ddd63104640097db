#include "wire/frame.h"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>

namespace thalweg::wire {
namespace {

Frame sample(FrameKind kind) {
  return {.kind = kind,
          .operation = 0x01020304,
          .index = 5,
          .length = 6,
          .signature = 0x0708090A0B0C0D0E,
          .started = 15,
          .rank = 16};
}

TEST(Frame, decode__gives_back_what_was_encoded) {
  for (int kind = 0; kind < kFrameKindCount; ++kind) {
    const Frame frame = sample(static_cast<FrameKind>(kind));
    Frame again;
    ASSERT_EQ(decode_frame(encode_frame(frame), again), WireError::kNone) << kind;
    EXPECT_EQ(again, frame);
  }
}

TEST(Frame, encode__has_the_documented_layout) {
  const auto bytes = encode_frame(sample(FrameKind::kData));
  EXPECT_EQ(bytes[1], std::byte{1});
  EXPECT_EQ(bytes[4], std::byte{4});
  EXPECT_EQ(bytes[7], std::byte{1});
  EXPECT_EQ(bytes[8], std::byte{5});
  EXPECT_EQ(bytes[12], std::byte{6});
  EXPECT_EQ(bytes[16], std::byte{0x0E});
  EXPECT_EQ(bytes[24], std::byte{15});
  EXPECT_EQ(bytes[28], std::byte{16});
}

TEST(Frame, decode__refuses_what_is_none) {
  const auto good = encode_frame(sample(FrameKind::kData));
  const auto decoded = [&](std::size_t at, int value) {
    auto bytes = good;
    bytes[at] = static_cast<std::byte>(value);
    Frame frame;
    return decode_frame(bytes, frame);
  };
  EXPECT_EQ(decoded(0, 99), WireError::kVersion);
  EXPECT_EQ(decoded(1, kFrameKindCount), WireError::kKind);
  EXPECT_EQ(decoded(2, 1), WireError::kReserved);
  EXPECT_EQ(decoded(15, 0xFF), WireError::kLength);
  EXPECT_EQ(decoded(12, 0), WireError::kField);  // data without bytes
  for (const std::uint32_t lane : {0U, kMaxLane + 1}) {
    Frame frame = sample(FrameKind::kLaneData);
    frame.rank = lane;
    Frame out;
    EXPECT_EQ(decode_frame(encode_frame(frame), out), WireError::kField) << lane;
  }
  Frame text = sample(FrameKind::kAbort);
  text.length = kMaxFrameText + 1;
  Frame frame;
  EXPECT_EQ(decode_frame(encode_frame(text), frame), WireError::kLength);
}

TEST(Frame, decode__a_way_of_checking_is_in_hellos_only) {
  for (int kind = 0; kind < kFrameKindCount; ++kind) {
    Frame frame = sample(static_cast<FrameKind>(kind));
    frame.check = FrameCheck::kChecksum;
    Frame again;
    const WireError error = decode_frame(encode_frame(frame), again);
    if (frame.kind == FrameKind::kHello) {
      EXPECT_EQ(error, WireError::kNone);
      EXPECT_EQ(again, frame);
    } else {
      EXPECT_EQ(error, WireError::kReserved) << kind;
    }
  }
  auto bytes = encode_frame(sample(FrameKind::kHello));
  bytes[2] = std::byte{kFrameCheckCount};
  Frame frame;
  EXPECT_EQ(decode_frame(bytes, frame), WireError::kReserved);
}

TEST(CheckedFrame, decode__finds_every_changed_bit_and_every_pair_of_swapped_words) {
  const Frame frame = sample(FrameKind::kData);
  const auto good = encode_checked_frame(frame, 0x11223344);
  Frame again;
  std::uint32_t payload = 0;
  ASSERT_EQ(decode_checked_frame(good, again, payload), WireError::kNone);
  EXPECT_EQ(again, frame);
  EXPECT_EQ(payload, 0x11223344U);
  for (std::size_t bit = 8; bit < 8 * kCheckedFrameSize; ++bit) {
    auto bytes = good;
    bytes[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    EXPECT_EQ(decode_checked_frame(bytes, again, payload), WireError::kChecksum) << bit;
  }
  for (std::size_t a = 2; a < kCheckedFrameSize; a += 2) {
    for (std::size_t b = a + 2; b < kCheckedFrameSize; b += 2) {
      auto bytes = good;
      std::swap(bytes[a], bytes[b]);
      std::swap(bytes[a + 1], bytes[b + 1]);
      if (bytes == good) continue;
      EXPECT_EQ(decode_checked_frame(bytes, again, payload), WireError::kChecksum) << a << ' ' << b;
    }
  }
}

TEST(CheckedFrame, decode__refuses_other_versions_and_long_payloads) {
  Frame frame = sample(FrameKind::kData);
  auto bytes = encode_checked_frame(frame, 0);
  bytes[0] = std::byte{kFrameVersion - 1};
  Frame again;
  std::uint32_t payload = 0;
  EXPECT_EQ(decode_checked_frame(bytes, again, payload), WireError::kVersion);
  frame.length = kMaxCheckedData + 1;
  EXPECT_EQ(decode_checked_frame(encode_checked_frame(frame, 0), again, payload),
            WireError::kLength);
}

TEST(Crc32c, parts__give_what_the_whole_gives) {
  // The check value of CRC-32C: that of the nine digits.
  const std::string digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  EXPECT_EQ(crc32c(bytes), 0xE3069283U);
  EXPECT_EQ(crc32c({}), 0U);
  for (std::size_t cut = 0; cut <= bytes.size(); ++cut) {
    Crc32c sum;
    sum.add(bytes.first(cut));
    sum.add(bytes.subspan(cut));
    EXPECT_EQ(sum.value(), 0xE3069283U);
  }
}

}  // namespace
}  // namespace thalweg::wire
