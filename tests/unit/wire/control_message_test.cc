#include "wire/control_message.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/prng.h"
#include "base/segment_tag.h"

namespace thalweg::wire {
namespace {

std::uint32_t any32(Prng& prng) { return static_cast<std::uint32_t>(prng.next()); }

ResendMessage random_resend(Prng& prng) {
  ResendMessage message{any32(prng), any32(prng), prng.chance(0.5), {}};
  message.ranges.resize(prng.below(kMaxRangesPerMessage + 1));
  for (SegmentRange& range : message.ranges) {
    range.first = static_cast<std::uint32_t>(prng.below(1U << 30));
    range.count = static_cast<std::uint32_t>(1 + prng.below(1U << 30));
  }
  return message;
}

CancelMessage random_cancel(Prng& prng) {
  CancelMessage message{any32(prng), prng.chance(0.5),
                        static_cast<CancelReason>(prng.below(kCancelReasonCount)), ""};
  message.text.resize(prng.below(kMaxCancelText + 1));
  for (char& c : message.text) c = static_cast<char>(prng.below(256));
  return message;
}

ReportMessage random_report(Prng& prng) {
  ReportMessage message{any32(prng), any32(prng), any32(prng), any32(prng),
                        any32(prng), any32(prng), prng.next()};
  message.paths = static_cast<std::uint8_t>(prng.below(kMaxReportPaths + 1));
  for (std::size_t i = 0; i < message.paths; ++i) {
    message.path_packets[i] = any32(prng);
    message.path_delay_us[i] = static_cast<std::uint16_t>(prng.below(0x10000));
  }
  return message;
}

ControlMessage random_message(Prng& prng) {
  switch (prng.below(9)) {
    case 0:
      return ReadyMessage{any32(prng),
                          prng.next(),
                          prng.next(),
                          any32(prng),
                          static_cast<std::uint32_t>(prng.below(1'000'000'000)),
                          static_cast<DType>(prng.below(kDTypeCount)),
                          prng.chance(0.5) ? kUngranted : any32(prng) >> 1};
    case 1:
      return StopMessage{any32(prng), any32(prng), prng.next(), any32(prng),
                         static_cast<std::uint8_t>(prng.below(kPriorityCount))};
    case 2:
      return random_resend(prng);
    case 3:
      return FinishMessage{any32(prng), any32(prng)};
    case 4:
      return ConfirmMessage{any32(prng)};
    case 5:
      return random_cancel(prng);
    case 6:
      return GrantMessage{any32(prng), any32(prng) >> 1};
    case 7: {
      const std::uint32_t granted = any32(prng) >> 1;
      return WantMessage{any32(prng), granted - std::min(granted, any32(prng)), granted,
                         prng.chance(0.5)};
    }
    default:
      return random_report(prng);
  }
}

std::vector<std::byte> bytes_of(const ControlMessage& message, const ControlEnvelope& about) {
  std::vector<std::byte> bytes(control_size(message, about), std::byte{0xee});
  encode_control(message, about, bytes);
  return bytes;
}

WireError decode_message(std::span<const std::byte> bytes) {
  ControlMessage message;
  ControlEnvelope about;
  return decode_control(bytes, message, about);
}

TEST(ControlMessage, encode__bytes_as_documented) {
  const ControlMessage message = ResendMessage{0x34333231, 7, true, {{0x0101, 2}}};
  const ControlEnvelope about{
      .job = 0x1817161514131211, .sequence = 0x2827262524232221, .keyed = true};
  std::vector<std::uint8_t> expected = {4,    3,    1,    0,    59,   0,    0,    0,    0x11, 0x12,
                                        0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x21, 0x22, 0x23, 0x24,
                                        0x25, 0x26, 0x27, 0x28, 0x31, 0x32, 0x33, 0x34,  // header
                                        7,    0,    0,    0,    1,    1,    0,           // resend
                                        1,    1,    0,    0,    2,    0,    0,    0};    // range
  expected.resize(expected.size() + kKeyedTagSize, 0);
  std::vector<std::uint8_t> bytes;
  for (const std::byte byte : bytes_of(message, about)) {
    bytes.push_back(static_cast<std::uint8_t>(byte));
  }
  EXPECT_EQ(bytes, expected);
}

TEST(ControlMessage, decode__finds_every_flipped_bit_of_a_message_with_a_checksum) {
  const ControlMessage message = ResendMessage{7, 8, true, {{9, 2}}};
  const std::vector<std::byte> good = bytes_of(message, {.job = 1, .checked = true});
  EXPECT_EQ(good.size(), bytes_of(message, {.job = 1}).size() + kChecksumSize);
  ASSERT_EQ(decode_message(good), WireError::kNone);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
    ControlMessage read;
    ControlEnvelope about;
    const bool passes = decode_control(bad, read, about) == WireError::kNone && about.checked;
    EXPECT_FALSE(passes) << bit;
  }
}

TEST(ControlMessage, encode__sizes_as_documented) {
  const auto size = [](const ControlMessage& message) { return control_size(message, {}); };
  EXPECT_EQ(size(ReadyMessage()), 28U + 25);
  EXPECT_EQ(size(StopMessage()), 28U + 17);
  EXPECT_EQ(size(ResendMessage()), 28U + 7);
  EXPECT_EQ(size(FinishMessage()), 28U + 4);
  EXPECT_EQ(size(ConfirmMessage()), 28U);
  EXPECT_EQ(size(CancelMessage()), 28U + 4);
  EXPECT_EQ(size(ReportMessage()), 28U + 32);
  ReportMessage by_path;
  by_path.paths = 4;
  EXPECT_EQ(size(by_path), 28U + 32 + 1 + 4 * 6);
  ReadyMessage granting;
  granting.first = 7;
  EXPECT_EQ(size(granting), 28U + 25 + 4);
  EXPECT_EQ(size(GrantMessage()), 28U + 4);
  EXPECT_EQ(size(WantMessage()), 28U + 9);
}

TEST(ControlMessage, decode__gives_what_was_encoded) {
  Prng prng(2);
  for (int i = 0; i < 20'000; ++i) {
    SCOPED_TRACE(i);
    const ControlMessage message = random_message(prng);
    const ControlEnvelope about{prng.next(), prng.next(), prng.chance(0.5)};
    const std::vector<std::byte> bytes = bytes_of(message, about);
    ASSERT_LE(bytes.size(), kMaxControlSize);
    std::size_t size = 0;
    ASSERT_EQ(peek_control(bytes, size), WireError::kNone);
    ASSERT_EQ(size, bytes.size());
    ControlMessage decoded;
    ControlEnvelope decoded_about;
    ASSERT_EQ(decode_control(bytes, decoded, decoded_about), WireError::kNone);
    ASSERT_EQ(decoded, message);
    ASSERT_EQ(decoded_about, about);
  }
}

TEST(ControlMessage, decode__every_other_length_is_refused) {
  Prng prng(3);
  for (int i = 0; i < 300; ++i) {
    SCOPED_TRACE(i);
    const ControlEnvelope about{1, 2, prng.chance(0.5)};
    std::vector<std::byte> bytes = bytes_of(random_message(prng), about);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      ASSERT_EQ(decode_message(std::span(bytes).first(size)), WireError::kShort);
    }
    bytes.push_back(std::byte{0});
    ASSERT_EQ(decode_message(bytes), WireError::kLength);
    // The length field agrees with the bytes, and the message is still too long.
    bytes[4] = static_cast<std::byte>(bytes.size() & 0xff);
    bytes[5] = static_cast<std::byte>(bytes.size() >> 8);
    ASSERT_NE(decode_message(bytes), WireError::kNone);
  }
}

TEST(ControlMessage, decode__names_what_is_wrong) {
  const auto changed = [](const ControlMessage& message, std::size_t place, int value) {
    std::vector<std::byte> bytes = bytes_of(message, {});
    bytes[place] = static_cast<std::byte>(value);
    return decode_message(bytes);
  };
  constexpr std::size_t kBody = kControlHeaderSize;
  EXPECT_EQ(changed(ConfirmMessage(), 0, 9), WireError::kVersion);
  EXPECT_EQ(changed(ConfirmMessage(), 1, 0), WireError::kKind);
  EXPECT_EQ(changed(ConfirmMessage(), 1, 10), WireError::kKind);
  EXPECT_EQ(changed(ConfirmMessage(), 2, 3), WireError::kReserved);
  EXPECT_EQ(changed(ConfirmMessage(), 3, 1), WireError::kReserved);
  EXPECT_EQ(changed(ConfirmMessage(), 4, 27), WireError::kLength);
  EXPECT_EQ(changed(ConfirmMessage(), 2, 1), WireError::kLength);  // keyed without room for a tag
  EXPECT_EQ(changed(ConfirmMessage(), 7, 1), WireError::kLength);  // 16 MiB and more
  EXPECT_EQ(changed(ReadyMessage(), kBody + 24, kDTypeCount), WireError::kField);
  EXPECT_EQ(changed(ReadyMessage(), kBody + 23, 0x7f), WireError::kField);  // bound of 1 and more
  ReadyMessage granting;
  granting.first = 7;
  EXPECT_EQ(changed(granting, kBody + 28, 0x7f), WireError::kNone);
  EXPECT_EQ(changed(granting, kBody + 28, 0x80), WireError::kField);  // from 2^31
  EXPECT_EQ(changed(GrantMessage(), kBody + 3, 0x80), WireError::kField);
  EXPECT_EQ(changed(WantMessage(), kBody + 0, 1), WireError::kField);  // more sent than granted
  EXPECT_EQ(changed(WantMessage(), kBody + 4, 1), WireError::kNone);
  EXPECT_EQ(changed(WantMessage(), kBody + 7, 0x80), WireError::kField);
  EXPECT_EQ(changed(WantMessage(), kBody + 8, 2), WireError::kReserved);
  EXPECT_EQ(changed(StopMessage(), kBody + 16, kPriorityCount), WireError::kField);
  EXPECT_EQ(changed(ResendMessage(), kBody + 4, 2), WireError::kReserved);
  EXPECT_EQ(changed(ResendMessage(), kBody + 5, 1), WireError::kLength);
  EXPECT_EQ(changed(ResendMessage(), kBody + 6, 2), WireError::kField);  // 512 ranges
  const ResendMessage one{1, 1, true, {{5, 1}}};
  EXPECT_EQ(changed(one, kBody + 11, 0), WireError::kField);     // a range of none
  EXPECT_EQ(changed(one, kBody + 10, 0x80), WireError::kField);  // from beyond 2^31
  EXPECT_EQ(changed(one, kBody + 14, 0x7f), WireError::kNone);   // up to just below it
  EXPECT_EQ(changed(one, kBody + 14, 0x80), WireError::kField);  // to beyond it
  EXPECT_EQ(changed(CancelMessage(), kBody, 2), WireError::kReserved);
  EXPECT_EQ(changed(CancelMessage(), kBody + 1, kCancelReasonCount), WireError::kField);
  EXPECT_EQ(changed(CancelMessage(), kBody + 2, 1), WireError::kLength);
  EXPECT_EQ(changed(CancelMessage(), kBody + 3, 3), WireError::kField);
  EXPECT_EQ(changed(ReportMessage(), 24, 1), WireError::kReserved);  // a report names no transfer
  ReportMessage by_path;
  by_path.paths = 4;
  EXPECT_EQ(changed(by_path, kBody + 32, 0), WireError::kField);
  EXPECT_EQ(changed(by_path, kBody + 32, 3), WireError::kLength);
  EXPECT_EQ(changed(by_path, kBody + 32, kMaxReportPaths + 1), WireError::kField);
}

TEST(ControlMessage, peek__asks_for_more_only_while_the_length_is_not_there) {
  const std::vector<std::byte> bytes = bytes_of(StopMessage(), {});
  std::size_t size = 0;
  for (std::size_t have = 0; have < 8; ++have) {
    EXPECT_EQ(peek_control(std::span(bytes).first(have), size), WireError::kShort);
  }
  EXPECT_EQ(peek_control(std::span(bytes).first(8), size), WireError::kNone);
  EXPECT_EQ(size, bytes.size());
}

}  // namespace
}  // namespace thalweg::wire
