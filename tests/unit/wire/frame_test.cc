#include "wire/frame.h"

#include <gtest/gtest.h>

namespace thalweg {
namespace {

Frame sample(FrameKind kind) {
  return {.kind = kind,
          .operation = 0x01020304,
          .slot = 5,
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

}  // namespace
}  // namespace thalweg
