#include "wire/sealed_frame.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "wire/sealed_bytes.h"

namespace thalweg::wire {
namespace {

StreamSecret stream_secret(char fill) {
  StreamSecret secret;
  secret.fill(static_cast<std::byte>(fill));
  return secret;
}

struct SealedText {
  SealedHeader header;
  std::vector<std::byte> payload;
};

SealedText sealed(FrameSealer& sealer, FrameSealer::Ticket ticket, const std::string& text) {
  SealedText out;
  const auto plain = std::as_bytes(std::span(text));
  out.payload.resize(plain.size());
  if (!plain.empty()) sealer.seal_payload(ticket, plain, out.payload);
  out.header = sealer.seal_header(
      std::move(ticket),
      {.kind = FrameKind::kAbort, .index = 7, .length = static_cast<std::uint32_t>(text.size())});
  return out;
}
SealedText sealed(FrameSealer& sealer, const std::string& text) {
  return sealed(sealer, sealer.next(), text);
}

// The text of a frame; "?": it is not the one that is due.
std::string opened(FrameOpener& opener, const SealedText& frame) {
  Frame header;
  if (opener.open_header(frame.header, header) != WireError::kNone) return "?";
  EXPECT_EQ(header.index, 7U);
  if (header.length == 0) return "";
  std::string text(frame.payload.size(), '\0');
  opener.open_payload(frame.payload, std::as_writable_bytes(std::span(text)));
  return opener.end_payload() ? text : "?";
}

TEST(SealedFrame, open__in_the_order_in_which_they_were_sealed) {
  for (const std::uint64_t records_per_key : {std::uint64_t{3}, kRecordsPerKey}) {
    FrameSealer sealer(stream_secret('a'), records_per_key);
    FrameOpener opener(stream_secret('a'), records_per_key);
    for (const std::string text : {"one", "", "three", "a longer one than these", "", "six"}) {
      EXPECT_EQ(opened(opener, sealed(sealer, text)), text);
    }
  }
}

// A payload that goes by a lane is sealed while other frames still wait.
TEST(SealedFrame, tickets__payloads_may_be_sealed_in_any_order) {
  FrameSealer sealer(stream_secret('a'), 2);
  FrameOpener opener(stream_secret('a'), 2);
  FrameSealer::Ticket first = sealer.next();
  FrameSealer::Ticket second = sealer.next();
  std::vector<std::byte> payload(100);
  sealer.seal_payload(second, payload, payload);
  EXPECT_EQ(opened(opener, sealed(sealer, std::move(first), "first")), "first");
  const SealedHeader header =
      sealer.seal_header(std::move(second), {.operation = 1, .index = 7, .length = 100});
  EXPECT_EQ(opened(opener, {header, payload}), std::string(100, '\0'));
}

TEST(SealedFrame, tickets__cannot_be_used_twice_or_out_of_order) {
  FrameSealer sealer(stream_secret('a'));
  FrameSealer::Ticket first = sealer.next();
  FrameSealer::Ticket second = sealer.next();
  std::vector<std::byte> payload(10);
  sealer.seal_payload(first, payload, payload);
  EXPECT_DEATH(sealer.seal_payload(first, payload, payload), "CHECK");
  EXPECT_DEATH(static_cast<void>(sealer.seal_header(std::move(second), {})), "CHECK");
  const FrameSealer::Ticket moved = std::move(first);
  EXPECT_DEATH(sealer.seal_payload(first, payload, payload),
               "CHECK");  // NOLINT: what is left of it
  EXPECT_TRUE(moved.valid());
}

TEST(SealedFrame, header__every_changed_bit_is_found) {
  FrameSealer sealer(stream_secret('a'));
  const SealedText good = sealed(sealer, "text");
  for (std::size_t bit = 0; bit < 8 * kSealedFrameSize; ++bit) {
    FrameOpener opener(stream_secret('a'));
    SealedText bad = good;
    bad.header[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    Frame frame;
    EXPECT_EQ(opener.open_header(bad.header, frame), WireError::kChecksum) << bit;
  }
  for (std::size_t bit = 0; bit < 8 * good.payload.size(); ++bit) {
    FrameOpener opener(stream_secret('a'));
    SealedText bad = good;
    bad.payload[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    EXPECT_EQ(opened(opener, bad), "?") << bit;
  }
}

TEST(SealedFrame, open__nothing_repeated_left_out_moved_or_of_another_stream) {
  FrameSealer sealer(stream_secret('a'));
  const SealedText one = sealed(sealer, "one");
  const SealedText two = sealed(sealer, "two");
  const SealedText three = sealed(sealer, "333");
  const auto after_one = [&](const SealedText& next) {
    FrameOpener opener(stream_secret('a'));
    EXPECT_EQ(opened(opener, one), "one");
    return opened(opener, next);
  };
  EXPECT_EQ(after_one(two), "two");
  EXPECT_EQ(after_one(one), "?");
  EXPECT_EQ(after_one(three), "?");
  EXPECT_EQ(after_one({two.header, three.payload}), "?");
  EXPECT_EQ(after_one({two.header, one.payload}), "?");
  FrameOpener other(stream_secret('b'));
  EXPECT_EQ(opened(other, one), "?");
}

// A receiver that drops a frame's data does not open it.
TEST(SealedFrame, open__a_payload_may_be_left_out_by_the_receiver) {
  FrameSealer sealer(stream_secret('a'));
  FrameOpener opener(stream_secret('a'));
  const SealedText one = sealed(sealer, "one");
  Frame frame;
  EXPECT_EQ(opener.open_header(one.header, frame), WireError::kNone);
  EXPECT_EQ(opened(opener, sealed(sealer, "two")), "two");
}

TEST(SealedFrame, open__what_is_authentic_and_no_frame_is_refused) {
  FrameSealer sealer(stream_secret('a'));
  FrameOpener opener(stream_secret('a'));
  const SealedHeader header =
      sealer.seal_header(sealer.next(), {.kind = static_cast<FrameKind>(kFrameKindCount)});
  Frame frame;
  EXPECT_EQ(opener.open_header(header, frame), WireError::kKind);
}

TEST(SealedBytes, open__whatever_the_pieces_are) {
  std::vector<std::byte> plain(3 * kMaxSealedBytes + 77);
  for (std::size_t i = 0; i < plain.size(); ++i) plain[i] = static_cast<std::byte>(i * 7 + i / 251);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{1000}, std::size_t{1} << 20}) {
    BytesSealer sealer(stream_secret('a'));
    BytesOpener opener(stream_secret('a'));
    std::vector<std::byte> stream;
    sealer.seal(std::span(plain).first(5), stream);
    sealer.seal(std::span(plain).subspan(5), stream);
    std::vector<std::byte> waiting;
    std::vector<std::byte> out;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      const std::span part =
          std::span<const std::byte>(stream).subspan(at, std::min(piece, stream.size() - at));
      waiting.insert(waiting.end(), part.begin(), part.end());
      std::span<const std::byte> left(waiting);
      const WireError error = opener.open(left, out);
      ASSERT_TRUE(error == WireError::kNone || error == WireError::kShort);
      waiting.erase(waiting.begin(), waiting.end() - static_cast<std::ptrdiff_t>(left.size()));
    }
    EXPECT_TRUE(waiting.empty());
    EXPECT_TRUE(out == plain);
  }
}

TEST(SealedBytes, open__every_changed_bit_is_found) {
  BytesSealer sealer(stream_secret('a'));
  std::vector<std::byte> good;
  sealer.seal(std::as_bytes(std::span("a message")), good);
  for (std::size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::vector<std::byte> bad = good;
    bad[bit / 8] ^= std::byte{1} << static_cast<int>(bit % 8);
    // A length that became larger waits for bytes that the tag then does not cover.
    bad.resize(bad.size() + kMaxSealedBytes);
    BytesOpener opener(stream_secret('a'));
    std::vector<std::byte> out;
    std::span<const std::byte> left(bad);
    const WireError error = opener.open(left, out);
    EXPECT_TRUE(error == WireError::kChecksum || error == WireError::kLength) << bit;
    EXPECT_TRUE(out.empty());
  }
}

TEST(SealedBytes, open__nothing_repeated_or_left_out) {
  BytesSealer sealer(stream_secret('a'));
  std::vector<std::byte> one;
  std::vector<std::byte> two;
  sealer.seal(std::as_bytes(std::span("one")), one);
  sealer.seal(std::as_bytes(std::span("two")), two);
  std::vector<std::byte> out;
  const auto open = [&](BytesOpener& opener, std::span<const std::byte> bytes) {
    return opener.open(bytes, out);
  };
  BytesOpener repeated(stream_secret('a'));
  EXPECT_EQ(open(repeated, one), WireError::kNone);
  EXPECT_EQ(open(repeated, one), WireError::kChecksum);
  BytesOpener left_out(stream_secret('a'));
  EXPECT_EQ(open(left_out, two), WireError::kChecksum);
}

}  // namespace
}  // namespace thalweg::wire
