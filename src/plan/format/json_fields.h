// The keys of a plan's JSON, and what each may hold. Only the reader needs them.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "plan/format/json.h"

namespace thalweg::plan {

inline constexpr std::int64_t kMaxRankValue = kMaxPlanRanks - 1;
inline constexpr std::int64_t kMaxInt32 = std::numeric_limits<std::int32_t>::max();
inline constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

// The type of a key's value.
enum class JsonFieldType : std::uint8_t { kInteger, kText, kArray };

struct JsonField {
  std::string_view key;
  JsonFieldType type = JsonFieldType::kInteger;
  bool required = true;
  std::int64_t least = 0;
  std::int64_t most = kMaxInt64;
};

struct PlanKey {
  enum Index : std::uint8_t {
    kFormat,
    kVersion,
    kScheme,
    kCollective,
    kRanks,
    kContributors,
    kRoot,
    kElements,
    kElementBytes,
    kChunks,
    kTransfers,
    kMixes
  };
};
inline constexpr std::array<JsonField, 12> kPlanFields{{
    {"format", JsonFieldType::kText},
    {"version", JsonFieldType::kInteger, true, kPlanFormatVersion, kPlanFormatVersion},
    {"scheme", JsonFieldType::kText},
    {"collective", JsonFieldType::kText},
    {"ranks", JsonFieldType::kInteger, true, 1, kMaxPlanRanks},
    {"contributors", JsonFieldType::kInteger, true, 1, kMaxPlanRanks},
    {"root", JsonFieldType::kInteger, false, 0, kMaxRankValue},
    {"elements", JsonFieldType::kInteger, true, 0, kMaxInt64},
    {"element_bytes", JsonFieldType::kInteger, true, 1, kMaxInt32},
    {"chunks", JsonFieldType::kArray},
    {"transfers", JsonFieldType::kArray},
    {"mixes", JsonFieldType::kArray, false},
}};

struct ChunkKey {
  enum Index : std::uint8_t { kOffset, kLength, kChunkSource, kChunkTarget };
};
inline constexpr std::array<JsonField, 4> kChunkFields{{
    {"offset", JsonFieldType::kInteger, true, 0, kMaxInt64},
    {"length", JsonFieldType::kInteger, true, 1, kMaxInt64},
    {"source", JsonFieldType::kInteger, false, 0, kMaxRankValue},
    {"target", JsonFieldType::kInteger, false, 0, kMaxRankValue},
}};

struct TransferKey {
  enum Index : std::uint8_t { kFrom, kTo, kChunk, kAfter, kKind };
};
inline constexpr std::array<JsonField, 5> kTransferFields{{
    {"from", JsonFieldType::kInteger, true, 0, kMaxRankValue},
    {"to", JsonFieldType::kInteger, true, 0, kMaxRankValue},
    {"chunk", JsonFieldType::kInteger, true, 0, kMaxInt32 - 1},
    {"after", JsonFieldType::kInteger, true, 0, kMaxPlanVersions},
    {"kind", JsonFieldType::kText},
}};

}  // namespace thalweg::plan
