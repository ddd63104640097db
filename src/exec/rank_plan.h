// RankPlan: one rank's part of a plan, laid out for running it.
//
// A buffer is a chunk that this rank sends or receives. Its arrivals stand in the order in which
// they are applied; arrival k makes version k + 1. Both ends of a transfer number it by its place
// among all arrivals at the target, in plan order: its slot.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"

namespace thalweg {

class RankPlan {
 public:
  struct Arrival {
    Rank source;
    std::uint32_t buffer = 0;
    std::uint32_t order = 0;  // among the arrivals of its buffer
    TransferKind kind = TransferKind::kReduce;
  };
  struct Send {
    Rank target;
    std::uint32_t slot = 0;  // of the arrival at the target
    std::uint32_t buffer = 0;
    std::uint32_t after = 0;  // the version it carries
    TransferKind kind = TransferKind::kReduce;
  };
  struct Buffer {
    ChunkIndex chunk;
    std::size_t bytes = 0;
    std::vector<std::uint32_t> arrivals;  // slots, in order
    std::vector<std::uint32_t> sends;     // by version
  };

  // The plan must be proved (verify.h). Requires a rank of it.
  RankPlan(const Plan& plan, Rank rank);

  // Its transfers with part `index` of `count` of every buffer alone. What is added to an element,
  // and in which order, is the same as undivided. Requires kLeastPart bytes a part in each buffer.
  [[nodiscard]] RankPlan part(std::size_t index, std::size_t count) const;
  // Where part `index` of a buffer begins, the same at all ranks; between elements of any type.
  [[nodiscard]] static std::size_t part_begin(std::size_t bytes, std::size_t index,
                                              std::size_t count);
  static constexpr std::size_t kLeastPart = 64;

  // Of the whole plan.
  [[nodiscard]] std::size_t tensor_bytes() const { return tensor_bytes_; }
  [[nodiscard]] std::size_t least_chunk() const { return least_chunk_; }  // in bytes

  [[nodiscard]] const std::vector<Arrival>& arrivals() const { return arrivals_; }  // [slot]
  [[nodiscard]] const std::vector<Send>& sends() const { return sends_; }           // in plan order
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  // Whom it sends to or receives from, ascending.
  [[nodiscard]] const std::vector<Rank>& peers() const { return peers_; }

 private:
  std::size_t tensor_bytes_;
  std::size_t least_chunk_;
  std::vector<Arrival> arrivals_;
  std::vector<Send> sends_;
  std::vector<Buffer> buffers_;
  std::vector<Rank> peers_;
};

// The part of rank 0, which sends, or 1, which receives, in a plan of one transfer between the two.
[[nodiscard]] RankPlan message_plan(std::int64_t elements, int element_bytes, bool sends);

}  // namespace thalweg
