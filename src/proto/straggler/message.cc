#include "proto/straggler/message.h"

#include <algorithm>

#include "base/check.h"
#include "wire/byte_io.h"

namespace thalweg::proto {
namespace {

constexpr std::int64_t kLeastSegmentBytes = 16 << 10;
// The most segments of all shards together, so that a call has a bounded number of messages.
constexpr int kMostPieces = 256;

}  // namespace

StragglerLayout StragglerLayout::of(std::int64_t elements, std::size_t element_bytes, int ranks) {
  const std::int64_t shard = elements * static_cast<std::int64_t>(element_bytes) / ranks;
  const std::int64_t most = std::clamp(kMostPieces / ranks, 2, kStragglerMostSegments);
  return {
      .elements = elements,
      .ranks = ranks,
      .segments = static_cast<int>(std::clamp(shard / kLeastSegmentBytes, std::int64_t{1}, most))};
}

void encode(const StragglerMessage& message, int ranks, std::span<std::byte> out) {
  wire::ByteWriter writer(out);
  writer.put(static_cast<std::uint8_t>(message.kind));
  writer.put(message.segment);
  writer.put(static_cast<std::uint8_t>(message.has_vote ? 1 : 0));
  writer.put(std::uint8_t{0});
  writer.put(message.call);
  writer.put(message.ballot);
  writer.put(message.vote);
  writer.put(message.set);
  for (int r = 0; r < ranks; ++r) writer.put(message.held[static_cast<std::size_t>(r)]);
  for (int r = 0; r < ranks; ++r) writer.put(message.cut[static_cast<std::size_t>(r)]);
  CHECK(writer.ok() && writer.used() == out.size());
}

bool decode(std::span<const std::byte> in, int ranks, StragglerMessage& message) {
  if (in.size() != straggler_message_bytes(ranks)) return false;
  wire::ByteReader reader(in);
  message = {};
  const auto kind = reader.get<std::uint8_t>();
  message.kind = static_cast<StragglerMessageKind>(kind);
  message.segment = reader.get<std::uint8_t>();
  const auto has_vote = reader.get<std::uint8_t>();
  message.has_vote = has_vote == 1;
  const auto zero = reader.get<std::uint8_t>();
  message.call = reader.get<std::uint64_t>();
  message.ballot = reader.get<std::uint64_t>();
  message.vote = reader.get<std::uint64_t>();
  message.set = reader.get<std::uint64_t>();
  const auto is_count = [](std::uint8_t count) { return count <= kStragglerMostSegments; };
  bool good = true;
  for (int r = 0; r < ranks; ++r) {
    message.held[static_cast<std::size_t>(r)] = reader.get<std::uint8_t>();
    good = good && is_count(message.held[static_cast<std::size_t>(r)]);
  }
  for (int r = 0; r < ranks; ++r) {
    message.cut[static_cast<std::size_t>(r)] = reader.get<std::uint8_t>();
    good = good && is_count(message.cut[static_cast<std::size_t>(r)]);
  }
  return good && reader.ok() && zero == 0 && has_vote <= 1 && kind >= 1 &&
         kind <= static_cast<std::uint8_t>(StragglerMessageKind::kGone) &&
         message.segment < kStragglerMostSegments && (message.set & ~all_ranks(ranks)) == 0;
}

}  // namespace thalweg::proto
