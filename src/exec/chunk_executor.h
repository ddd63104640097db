// ChunkExecutor: runs one rank's part of a plan by whole chunks, without I/O: for transports that
// carry tensors instead of streams, and may lose segments of them (DLCP).
//
// Exact: what travels is the chunk. With loss, every segment stands for itself: it carries how many
// contributions are in it, and then as many elements as fit. A reduction adds what arrived, sums
// and counts; a copy replaces what arrived; what did not arrive stays as it was, which is the
// average of the contributions that this rank knows. finish() turns sums into averages over their
// counts (DLCP, appendix A), or, for a sum, into those averages times the number of ranks.
//
//   segment on the wire   │ count (one element) │ elements │
//
// What a send carries is copied when its version is there, so that later arrivals need not wait
// for it to leave; and what arrives is received into memory of the executor's own. So the tensor is
// touched in start(), arrived() and finish() only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <thalweg/types.h>

#include "exec/rank_plan.h"

namespace thalweg {

// Gives memory of at least so many bytes, whatever is in it; it is free again with the last
// pointer.
using BlockSource = std::function<std::shared_ptr<std::byte>(std::size_t)>;
[[nodiscard]] std::shared_ptr<std::byte> block_from_heap(std::size_t bytes);

class ChunkExecutor {
 public:
  // [begin, end), in elements on the wire; whole segments.
  struct Lost {
    std::int64_t begin = 0;
    std::int64_t end = 0;
  };

  // `segment_elements`: elements that fit a segment on the wire, at least 2; 0: exact. The memory
  // of each buffer holds this rank's contribution. Plan and memory must outlive the run. What
  // arrives and leaves lies in blocks of `blocks`.
  ChunkExecutor(const RankPlan& plan, DType type, ReduceOp op, std::int64_t segment_elements,
                std::span<std::byte* const> memory, BlockSource blocks = block_from_heap);

  // Sends whose tensor is there, each once. Poll after construction and arrived().
  bool poll_ready(std::uint32_t& send);
  // On the wire: what a polled send carries, until sent().
  [[nodiscard]] std::span<const std::byte> outgoing(std::uint32_t send) const {
    return outgoing_[send].bytes();
  }
  void sent(std::uint32_t send);

  // Where the slot's tensor is to be received, until arrived().
  [[nodiscard]] std::span<std::byte> incoming(std::uint32_t slot) {
    return incoming_[slot].wire.bytes();
  }
  void arrived(std::uint32_t slot, std::span<const Lost> lost);
  [[nodiscard]] bool outstanding(std::uint32_t slot) const { return !incoming_[slot].here; }

  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  // Requires done(), once: the averages, if segments may be lost. `mean`: else they are sums, of
  // `ranks`.
  void finish(bool mean, int ranks);
  // Error feedback. Requires finish(true, ranks). `residual` holds this rank's contribution to the
  // tensor that begins at `tensor`, over which the plan is laid. Leaves of it: less the average
  // where that is one of fewer than all, and zeros elsewhere, also where no average arrived.
  void keep_residual(int ranks, const std::byte* tensor, std::byte* residual) const;
  // Of the segments that were to arrive here, those that did.
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
  // Elements of the chunk in one segment.
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

}  // namespace thalweg
