// A Plan: one collective operation as data. It says who sends which chunk to whom, after what.
//
// Vocabulary. The tensor is cut into chunks. Every rank keeps one buffer per chunk. A buffer starts
// as version 0, the rank's own contribution (or empty, if it contributes nothing to that chunk).
// Each transfer that arrives makes the next version: `reduce` adds the arriving value to the
// buffer, `copy` replaces it. Arrivals at a (rank, chunk) are applied in the order in which the
// transfers stand in the plan, whatever order they come in over the network, so that a sum of
// floats has one defined order.
//
// A transfer carries version `after` of its source's buffer: it may start once the first `after`
// arrivals there have been applied, and it must not see later ones. These are the only
// dependencies; chunks are independent of one another.
//
// For example, two ranks that swap chunk 0 and add (one step of a butterfly) are
//     {0 → 1, chunk 0, after 0, reduce}   {1 → 0, chunk 0, after 0, reduce}
// and a relay through rank 1 is {0 → 1, after 0, reduce} {1 → 2, after 1, reduce}.
//
// The chunks alone say what the ranks must hold in the end: the contributions of `source` (all
// contributors if invalid) at `target` (all contributors if invalid). verify() proves it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"

namespace thalweg::plan {

enum class Collective : std::uint8_t {
  kAllreduce,      // everyone ends with the reduction of all contributions
  kReduce,         // the root ends with the reduction of all contributions
  kBroadcast,      // everyone ends with the root's tensor
  kReduceScatter,  // rank r ends with the r-th share of the reduction
  kAllGather,      // everyone ends with the shares of all, in rank order
  kAllToAll,       // rank r ends with the r-th shares of all ranks' tensors
  kGather,         // the root ends with the shares of all, in rank order
  kScatter,        // rank r ends with the r-th share of the root's tensor
  kMix,            // rank r ends with the reduction of the contributions in mixes[r]
};
inline constexpr int kCollectiveCount = 9;

// Limits of a plan; they bound the memory of verify().
inline constexpr int kMaxPlanRanks = 8192;
inline constexpr int kMaxPlanVersions = 65535;  // arrivals at one buffer

const char* name_of(Collective collective);
// Whether one rank, the root, has the whole input or gets the whole output.
bool has_root(Collective collective);
// An error lists the names.
Result<Collective> parse_collective(std::string_view name);

// A part of the tensor that moves as one.
//   kAllToAll: [offset, offset+length) lies in the source's buffer, in its share for the target;
//   the part that a rank keeps is a chunk too (source == target), which no transfer needs to move.
//   All other collectives: it lies in the whole tensor, of which every rank has (room for) a copy.
struct Chunk {
  std::int64_t offset = 0;  // in elements
  std::int64_t length = 0;  // in elements, above 0
  Rank source;              // invalid: every contributor adds to it
  Rank target;              // invalid: every contributor needs it
  bool operator==(const Chunk&) const = default;
};

enum class TransferKind : std::uint8_t { kReduce, kCopy };

struct PlanTransfer {
  Rank source;
  Rank target;
  ChunkIndex chunk;
  std::int32_t after = 0;  // the version of the source's buffer that the transfer carries
  TransferKind kind = TransferKind::kReduce;
  bool operator==(const PlanTransfer&) const = default;
};

struct Plan {
  std::string scheme;  // as a user writes it: "rat", "ps:servers=2"
  Collective collective = Collective::kAllreduce;
  int ranks = 0;
  // Ranks 0 … contributors−1 contribute and need the result; the others only help (as separate
  // servers).
  int contributors = 0;
  Rank root;  // only for collectives that have a root
  std::int64_t elements = 0;
  int element_bytes = 4;
  std::vector<Chunk> chunks;
  // The plan can be executed one transfer after the other in this order.
  std::vector<PlanTransfer> transfers;
  // kMix: mixes[r] are the ranks whose contributions rank r ends with.
  std::vector<std::vector<Rank>> mixes;

  [[nodiscard]] Bytes size() const { return Bytes(elements * element_bytes); }
  [[nodiscard]] Bytes size_of(ChunkIndex chunk) const {
    return Bytes(chunks[chunk.index()].length * element_bytes);
  }
  bool operator==(const Plan&) const = default;
};

// The `index`-th of `parts` nearly equal parts of `elements`, as [offset, offset+length). The first
// elements % parts parts are one element longer.
struct Share {
  std::int64_t offset = 0;
  std::int64_t length = 0;
};
Share share_of(std::int64_t elements, std::int64_t parts, std::int64_t index);

// Checks the shape: ids are in range, versions can exist, and chunks tile what the collective
// moves. verify() requires it; every plan that is read from a file is checked.
Status check_shape(const Plan& plan);

}  // namespace thalweg::plan
