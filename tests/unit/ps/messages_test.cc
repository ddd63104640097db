// The messages of a parameter server, and how the server reads requests.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ps/request_reader.h"
#include "ps/workers.h"
#include "wire/checksum.h"
#include "wire/ps_message.h"

namespace thalweg::ps {
namespace {

TEST(PsMessage, decode__what_was_encoded_and_nothing_else) {
  std::array<std::byte, wire::kPsHeaderSize> bytes;
  const wire::PsHeader header{.kind = wire::PsKind::kPush, .text = 5, .elements = 77};
  wire::encode_ps_header(header, bytes);
  wire::PsHeader read;
  ASSERT_EQ(wire::decode_ps_header(bytes, read), wire::WireError::kNone);
  EXPECT_EQ(read, header);
  for (const std::size_t wrong : {0U, 1U, 2U, 4U, 9U, 12U, 23U, 24U}) {
    auto broken = bytes;
    broken[wrong] ^= std::byte{0xf0};
    EXPECT_NE(wire::decode_ps_header(broken, read), wire::WireError::kNone) << wrong;
  }
}

TEST(PsMessage, decode__an_error_brings_its_code_and_the_worker_to_blame) {
  std::array<std::byte, wire::kPsHeaderSize> bytes;
  for (const std::uint32_t worker : {0U, 3U, wire::kNoPsWorker}) {
    const wire::PsHeader error{
        .kind = wire::PsKind::kError, .worker = worker, .text = 5, .clock = 2};
    wire::encode_ps_header(error, bytes);
    wire::PsHeader read;
    ASSERT_EQ(wire::decode_ps_header(bytes, read), wire::WireError::kNone);
    EXPECT_EQ(read, error);
  }
}

// Feeds a request in pieces of `step` bytes.
RequestReader::Progress feed(RequestReader& reader, std::span<const std::byte> bytes,
                             std::size_t step) {
  RequestReader::Progress last = RequestReader::Progress::kMore;
  while (!bytes.empty()) {
    const std::span<std::byte> room = reader.room();
    const std::size_t now = std::min({step, room.size(), bytes.size()});
    std::ranges::copy(bytes.first(now), room.begin());
    bytes = bytes.subspan(now);
    last = reader.on_received(now);
    if (last == RequestReader::Progress::kBad || last == RequestReader::Progress::kSpoiled) {
      return last;
    }
  }
  return last;
}

std::vector<std::byte> request_bytes(wire::PsHeader header, const std::string& text,
                                     std::span<const float> elements, bool checks = false) {
  header.text = static_cast<std::uint32_t>(text.size());
  std::vector<std::byte> bytes(wire::kCheckedPsHeaderSize);
  const std::uint32_t payload =
      wire::crc32c(std::as_bytes(std::span(text)), std::as_bytes(elements));
  wire::encode_checked_ps_header(header, payload,
                                 std::span(bytes).first<wire::kCheckedPsHeaderSize>());
  if (!checks) bytes.resize(wire::kPsHeaderSize);
  for (const auto part : {std::as_bytes(std::span(text)), std::as_bytes(elements)}) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  return bytes;
}

// A reader that has got a hello.
RequestReader greeted(bool checks = false) {
  RequestReader reader;
  const auto hello =
      request_bytes({.kind = wire::PsKind::kHello, .checks = checks}, "", {}, /*checks=*/true);
  EXPECT_EQ(feed(reader, hello, 100), RequestReader::Progress::kComplete);
  EXPECT_TRUE(reader.answer_checked());
  reader.next();
  EXPECT_EQ(reader.answer_checked(), checks);
  return reader;
}

TEST(RequestReader, requests__in_pieces_of_any_size) {
  const Values elements = gradient_of(0, 0, 1000);
  for (const bool checks : {false, true}) {
    const auto bytes = request_bytes({.kind = wire::PsKind::kPush, .elements = elements.size()},
                                     "layer", elements, checks);
    for (const std::size_t step : {1U, 7U, 33U, 100'000U}) {
      RequestReader reader = greeted(checks);
      for (int i = 0; i < 2; ++i) {
        ASSERT_EQ(feed(reader, bytes, step), RequestReader::Progress::kComplete);
        EXPECT_EQ(reader.text(), "layer");
        EXPECT_TRUE(std::ranges::equal(reader.elements(), elements));
        reader.next();
      }
    }
  }
  RequestReader reader;
  const std::vector<std::byte> nonsense(wire::kCheckedPsHeaderSize, std::byte{0xff});
  EXPECT_EQ(feed(reader, nonsense, 5), RequestReader::Progress::kVersion);
}

TEST(RequestReader, checks__a_request_that_changed_is_not_complete) {
  const Values elements{1, 2, 3};
  const auto bytes = request_bytes({.kind = wire::PsKind::kPush, .elements = 3}, "w", elements,
                                   /*checks=*/true);
  for (std::size_t wrong = 0; wrong < bytes.size(); ++wrong) {
    auto broken = bytes;
    broken[wrong] ^= std::byte{0x10};
    RequestReader reader = greeted(true);
    const RequestReader::Progress expected = wrong < wire::kCheckedPsHeaderSize
                                                 ? RequestReader::Progress::kSpoiled
                                                 : RequestReader::Progress::kChanged;
    EXPECT_EQ(feed(reader, broken, 9), expected) << wrong;
    if (expected != RequestReader::Progress::kChanged) continue;
    reader.next();
    EXPECT_EQ(feed(reader, bytes, 9), RequestReader::Progress::kComplete) << "the next one";
  }
}

TEST(RequestReader, checks__a_request_that_is_refused_is_checked_too) {
  const Values elements(600'000, 1);
  auto bytes = request_bytes({.kind = wire::PsKind::kPush, .elements = elements.size()}, "w",
                             elements, /*checks=*/true);
  for (const bool changed : {false, true}) {
    if (changed) bytes.back() ^= std::byte{1};
    RequestReader reader = greeted(true);
    ASSERT_EQ(feed(reader, std::span(bytes).first(41), 41), RequestReader::Progress::kNamed);
    reader.refuse(Error("no"));
    EXPECT_EQ(feed(reader, std::span(bytes).subspan(41), RequestReader::kStep),
              changed ? RequestReader::Progress::kChanged : RequestReader::Progress::kComplete);
  }
}

TEST(RequestReader, memory__is_for_what_has_arrived) {
  RequestReader reader = greeted();
  const auto bytes =
      request_bytes({.kind = wire::PsKind::kInit, .elements = wire::kMaxPsElements}, "w", {});
  ASSERT_EQ(feed(reader, bytes, 100), RequestReader::Progress::kNamed);
  EXPECT_EQ(reader.room().size(), RequestReader::kStep);
}

TEST(RequestReader, refuse__reads_to_the_end) {
  RequestReader reader = greeted();
  constexpr std::uint64_t kElements = 2'000'000;
  const auto bytes = request_bytes({.kind = wire::PsKind::kPush, .elements = kElements}, "w", {});
  ASSERT_EQ(feed(reader, bytes, 100), RequestReader::Progress::kNamed);
  reader.refuse(Error("no"));
  const Values elements(kElements, 1);
  EXPECT_EQ(feed(reader, std::as_bytes(std::span(elements)), RequestReader::kStep),
            RequestReader::Progress::kComplete);
  ASSERT_TRUE(reader.refusal());
  reader.next();
  EXPECT_FALSE(reader.refusal());
  EXPECT_EQ(feed(reader, bytes, 100), RequestReader::Progress::kNamed);
}

}  // namespace
}  // namespace thalweg::ps
