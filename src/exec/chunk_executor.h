// ChunkExecutor: runs one rank's part of a plan chunk by chunk, without I/O. It is for transports
// that carry whole tensors instead of streams, and may lose segments of them (DLCP).
//
// Exact: a transfer carries the chunk as it is. With loss, every segment stands for itself: it
// carries the number of contributions in it, followed by as many elements as fit. A reduction adds
// what arrived, sums and counts. A copy replaces what arrived. What did not arrive stays as it was,
// which is the sum of the contributions that this rank knows. finish() divides the sums by their
// counts (DLCP, appendix A), and for a sum multiplies these averages by the number of ranks.
//
//   segment on the wire   │ count (one element) │ elements │
//
// The data of a send is copied as soon as its version is complete, so that later arrivals need not
// wait until it has left. Arrivals are received into memory of the executor. So only the
// constructor, arrived() and finish() touch the tensor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <thalweg/types.h>

#include "exec/rank_plan.h"

namespace thalweg::exec {

// Returns at least so many bytes of undefined content, which are free again when the last pointer
// is gone.
using BlockSource = std::function<std::shared_ptr<std::byte>(std::size_t)>;
[[nodiscard]] std::shared_ptr<std::byte> block_from_heap(std::size_t bytes);

class ChunkExecutor {
 public:
  // Lost elements [begin, end), counted on the wire: whole segments.
  struct Lost {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  // `segment_elements`: elements that fit a segment on the wire, at least 2; 0: exact. The memory
  // of each buffer holds this rank's contribution. Plan and memory must outlive the run. `blocks`
  // provides the memory for what arrives and leaves.
  ChunkExecutor(const RankPlan& plan, DType type, ReduceOp op, std::int64_t segment_elements,
                std::span<std::byte* const> memory, BlockSource blocks = block_from_heap);

  // Returns a send whose data is complete, each send once. False: there is none now. Poll after
  // construction and after arrived().
  bool poll_ready(std::uint32_t& send);
  // The bytes on the wire of a polled send, valid until sent().
  [[nodiscard]] std::span<const std::byte> outgoing(std::uint32_t send) const {
    return outgoing_[send].bytes();
  }
  void sent(std::uint32_t send);

  // The memory to receive the slot's data into, valid until arrived().
  [[nodiscard]] std::span<std::byte> incoming(std::uint32_t slot) {
    return incoming_[slot].wire.bytes();
  }
  void arrived(std::uint32_t slot, std::span<const Lost> lost);
  [[nodiscard]] bool outstanding(std::uint32_t slot) const { return !incoming_[slot].here; }

  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  // Requires done(). Call once. If segments may be lost, it turns sums into averages (`mean`), or
  // into averages times `ranks`.
  void finish(bool mean, int ranks);
  // Error feedback. Requires finish(true, ranks). The plan lies over the tensor that begins at
  // `tensor`, and `residual` holds this rank's contribution to it. Afterwards `residual` holds
  // contribution − average where the average lacks contributions, and zeros elsewhere, including
  // where no average arrived.
  void keep_residual(int ranks, const std::byte* tensor, std::byte* residual) const;
  // The fraction of the segments for this rank that arrived.
  [[nodiscard]] double arrived_fraction() const;

 private:
  struct Block {
    std::shared_ptr<std::byte> memory;
    std::size_t size = 0;
    [[nodiscard]] std::span<std::byte> bytes() const { return {memory.get(), size}; }
  };
  struct Incoming {
    Block wire;
    std::vector<Lost> lost;
    bool here = false;
  };

  [[nodiscard]] std::int64_t elements_of(std::uint32_t buffer) const {
    return static_cast<std::int64_t>(plan_.buffers()[buffer].bytes / element_);
  }
  // Elements of the chunk that one segment carries.
  [[nodiscard]] std::int64_t data_elements() const { return segment_elements_ - 1; }
  [[nodiscard]] std::int64_t segments_of(std::uint32_t buffer) const {
    return (elements_of(buffer) + data_elements() - 1) / data_elements();
  }
  [[nodiscard]] Block block_for(std::uint32_t buffer) const;
  void make_ready(std::uint32_t buffer);
  void fill(std::uint32_t send);
  void apply(std::uint32_t slot);
  void apply_segments(std::uint32_t slot, std::int64_t begin, std::int64_t end);

  const RankPlan& plan_;
  DType type_;
  ReduceOp op_;
  std::size_t element_;
  std::int64_t segment_elements_;
  BlockSource blocks_;
  std::vector<std::byte*> memory_;                  // [buffer]
  std::vector<std::vector<std::uint16_t>> counts_;  // [buffer][segment]
  std::vector<std::vector<bool>> forgone_;          // [buffer][segment]: its result did not arrive
  std::vector<std::uint32_t> version_;              // [buffer]
  std::vector<std::uint32_t> next_send_;            // [buffer]
  std::vector<Incoming> incoming_;                  // [slot]
  std::vector<Block> outgoing_;                     // [send]
  std::vector<std::uint32_t> ready_;
  std::size_t unfinished_;
  std::int64_t segments_wanted_ = 0;
  std::int64_t segments_lost_ = 0;
};

}  // namespace thalweg::exec
