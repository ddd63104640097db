// RankPlan: one rank's part of a plan, arranged for running it.
//
// A buffer is a chunk that this rank sends or receives. Its arrivals are listed in the order in
// which they are applied; arrival k makes version k + 1. Both ends of a transfer identify it by the
// number of the arrival among all at the target, in the order of the plan.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/units.h"
#include "plan/plan.h"

namespace thalweg::exec {

class RankPlan {
 public:
  struct Arrival {
    Rank source;
    std::uint32_t buffer = 0;
    std::uint32_t order = 0;  // its place among the arrivals of its buffer
    plan::TransferKind kind = plan::TransferKind::kReduce;
    bool operator==(const Arrival&) const = default;
  };
  struct Send {
    Rank target;
    std::uint32_t arrival = 0;  // its number at the target
    std::uint32_t buffer = 0;
    std::uint32_t after = 0;  // the version it carries
    plan::TransferKind kind = plan::TransferKind::kReduce;
    bool operator==(const Send&) const = default;
  };
  struct Buffer {
    ChunkIndex chunk;
    std::size_t bytes = 0;
    std::vector<std::uint32_t> arrivals;  // in the order of application
    std::vector<std::uint32_t> sends;     // indices of sends(), ordered by version
    bool operator==(const Buffer&) const = default;
  };

  // Requires a plan that was proved (plan/verify.h) and a rank of it.
  RankPlan(const plan::Plan& plan, Rank rank);
  // The parts of all ranks, in their order. Takes the time of one.
  [[nodiscard]] static std::vector<RankPlan> of_all(const plan::Plan& plan);

  // Returns the same transfers for part `index` of `count` of every buffer. What is added to an
  // element, and in which order, is the same as without division. Requires at least kLeastPart
  // bytes per part in each buffer.
  [[nodiscard]] RankPlan part(std::size_t index, std::size_t count) const;
  // The byte at which part `index` of a buffer begins. It is the same on all ranks, and between
  // elements of any type.
  [[nodiscard]] static std::size_t part_begin(std::size_t bytes, std::size_t index,
                                              std::size_t count);
  static constexpr std::size_t kLeastPart = 64;

  // Sizes of the whole plan, in bytes.
  [[nodiscard]] std::size_t tensor_bytes() const { return tensor_bytes_; }
  [[nodiscard]] std::size_t least_chunk() const { return least_chunk_; }  // in bytes

  [[nodiscard]] const std::vector<Arrival>& arrivals() const { return arrivals_; }  // [arrival]
  [[nodiscard]] const std::vector<Send>& sends() const { return sends_; }           // in plan order
  [[nodiscard]] const std::vector<Buffer>& buffers() const { return buffers_; }
  // The ranks it sends to or receives from, ascending.
  [[nodiscard]] const std::vector<Rank>& peers() const { return peers_; }
  bool operator==(const RankPlan&) const = default;

 private:
  // The buffer of each chunk that the rank has one for.
  using BufferOfChunk = std::unordered_map<std::int32_t, std::uint32_t>;

  // A part without transfers yet.
  explicit RankPlan(const plan::Plan& plan);
  std::uint32_t buffer_of(ChunkIndex chunk, const plan::Plan& plan, BufferOfChunk& known);
  void add_send(const plan::PlanTransfer& transfer, std::uint32_t arrival, std::uint32_t buffer);
  void add_arrival(const plan::PlanTransfer& transfer, std::uint32_t arrival, std::uint32_t buffer);
  // All transfers were added.
  void finish();

  std::size_t tensor_bytes_;
  std::size_t least_chunk_;
  std::vector<Arrival> arrivals_;
  std::vector<Send> sends_;
  std::vector<Buffer> buffers_;
  std::vector<Rank> peers_;
};

// A plan of one transfer from rank 0 to rank 1: the part of rank 0 if `sends`, or of rank 1.
[[nodiscard]] RankPlan message_plan(std::int64_t elements, int element_bytes, bool sends);

}  // namespace thalweg::exec
