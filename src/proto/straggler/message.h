// What the ranks of an allreduce with a straggler bound tell each other, and how the tensor is cut.
//
//   message = kind u8, segment u8, has_vote u8, zero u8, call u64, ballot u64, vote u64, set u64,
//             held u8 × ranks, cut u8 × ranks
//
// Every message has all fields; a field that a kind does not use is 0.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace thalweg::proto {

inline constexpr int kStragglerMostRanks = 64;
inline constexpr int kStragglerMostSegments = 16;  // of each shard

using RankSet = std::uint64_t;  // bit r: rank r
constexpr RankSet set_of(int rank) { return RankSet{1} << rank; }
constexpr RankSet all_ranks(int ranks) { return ~RankSet{0} >> (64 - ranks); }

// [owner]: how many leading segments of its shard count. The others are void: nobody's contribution
// to them counts.
using StragglerCut = std::array<std::uint8_t, kStragglerMostRanks>;

enum class StragglerMessageKind : std::uint8_t {
  kSums = 1,  // the owner's sum of `segment` holds the contributions of `set`
  kWaiting,   // the owner waits for contributions that it may not leave out
  kPrepare,   // asks for a promise to vote in no ballot below `ballot`
  kPromise,   // the answer: the results `held` so far, and the last vote (`vote`, `cut`), if any
  kAccept,    // asks for votes for `cut` in `ballot`
  kVote,      // a vote for `cut` in `ballot`; in ballot 0, for the whole result
  kGone,  // the sender has failed the call, and all later ones, because the rank of `set` is lost
};

struct StragglerMessage {
  StragglerMessageKind kind = StragglerMessageKind::kSums;
  std::uint8_t segment = 0;
  bool has_vote = false;
  std::uint64_t call = 0;
  std::uint64_t ballot = 0;
  std::uint64_t vote = 0;
  RankSet set = 0;
  StragglerCut held = {};
  StragglerCut cut = {};
  bool operator==(const StragglerMessage&) const = default;
};

constexpr std::size_t straggler_message_bytes(int ranks) {
  return 36 + 2 * static_cast<std::size_t>(ranks);
}
// `out` has straggler_message_bytes(ranks).
void encode(const StragglerMessage& message, int ranks, std::span<std::byte> out);
// False: the bytes are no message of a group with so many ranks.
[[nodiscard]] bool decode(std::span<const std::byte> in, int ranks, StragglerMessage& message);

// How a tensor is cut: one shard for each rank, which that rank sums, and segments of each shard.
struct StragglerLayout {
  std::int64_t elements = 0;
  int ranks = 1;
  int segments = 1;  // of each shard

  // Segments have about 16 KiB or more.
  static StragglerLayout of(std::int64_t elements, std::size_t element_bytes, int ranks);
  // The first element of a segment of the owner's shard.
  [[nodiscard]] std::int64_t first(int owner, int segment) const {
    const std::int64_t pieces = std::int64_t{ranks} * segments;
    const std::int64_t piece = std::int64_t{owner} * segments + segment;
    return elements / pieces * piece + elements % pieces * piece / pieces;
  }
  [[nodiscard]] std::int64_t count(int owner, int segment) const {
    return first(owner, segment + 1) - first(owner, segment);
  }
  // Elements of the shard from this segment on.
  [[nodiscard]] std::int64_t rest(int owner, int segment) const {
    return first(owner, segments) - first(owner, segment);
  }
};

}  // namespace thalweg::proto
