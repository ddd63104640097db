// SegmentExecutor: runs one rank's part of a plan segment by segment, without I/O. It is for
// transports that carry tensors in segments, which arrive in any order and may be lost (DLCP).
//
// What may be applied and sent is decided by progress.h, segment by segment: one that arrived is
// applied and forwarded at once, also while others of its chunk are missing. When a transfer has
// ended within its bound, what it lacks goes on with the contributions that are there.
//
// Exact: a segment carries elements of the chunk. With loss, it carries the number of contributions
// in it, followed by as many elements as fit. A reduction adds what arrived, sums and counts. A
// copy replaces what arrived. What did not arrive stays as it was, which is the sum of the
// contributions that this rank knows. finish() divides the sums by their counts (DLCP, appendix A),
// and for a sum multiplies these averages by the number of ranks.
//
//   segment on the wire   │ count (one element) │ elements │
//
// What a transfer reads or writes is memory of the executor: transfers of an operation that failed
// may go on for a while, and the tensor is the caller's again by then. So only start(), arrived(),
// ended() and finish() touch the tensor. A segment that is sent is copied when it becomes ready,
// while it is in the processor's cache; all sends of a version share that copy, and what arrives as
// a copy is sent on from where it arrived.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include <thalweg/types.h>

#include "exec/progress.h"
#include "exec/rank_plan.h"

namespace thalweg::exec {

// Returns at least so many bytes of undefined content, which are free again when the last pointer
// is gone.
using BlockSource = std::function<std::shared_ptr<std::byte>(std::size_t)>;
[[nodiscard]] std::shared_ptr<std::byte> block_from_heap(std::size_t bytes);

class SegmentExecutor {
 public:
  // How chunks are divided on the wire.
  struct Layout {
    // Elements of a segment, at least 1; with counts at least 2. A chunk's last segment may have
    // fewer.
    std::int64_t segment_elements = 0;
    // The first element of each segment is a count, and segments may be lost.
    bool counted = false;
  };
  // Segments of a send that became ready.
  struct Ready {
    std::uint32_t send = 0;
    Run segments;
  };

  // The memory of each buffer holds this rank's contribution. Plan and memory must outlive the run.
  // `blocks` provides the memory for what arrives and leaves.
  SegmentExecutor(const RankPlan& plan, DType type, ReduceOp op, Layout layout,
                  std::span<std::byte* const> memory, BlockSource blocks = block_from_heap);

  // Returns segments that may leave and were not returned before. False: there are none now. Poll
  // after construction, arrived() and ended().
  bool poll_ready(Ready& out);
  // The bytes on the wire of a send that was polled, valid until sent(). Segments that were not
  // polled have undefined content.
  [[nodiscard]] std::span<const std::byte> outgoing(std::uint32_t send) const {
    return versions_[plan_.sends()[send].buffer][plan_.sends()[send].after].bytes();
  }
  // The send is over. Its receiver may have enough before all of it was ready.
  void sent(std::uint32_t send);

  // The memory to receive the arrival's data into, valid until ended().
  [[nodiscard]] std::span<std::byte> incoming(std::uint32_t arrival) {
    return incoming_[arrival].bytes();
  }
  // These segments of the arrival have arrived. Requires that they had not, and that the arrival
  // has not ended.
  void arrived(std::uint32_t arrival, Run segments);
  // The arrival's transfer is over: what has not arrived is lost, which must be nothing without
  // counts.
  void ended(std::uint32_t arrival);
  [[nodiscard]] bool outstanding(std::uint32_t arrival) const { return !ended_[arrival]; }

  [[nodiscard]] std::size_t segments_of(std::uint32_t buffer) const {
    return progress_.units_of(buffer);
  }
  [[nodiscard]] std::int64_t wire_elements(std::uint32_t buffer) const;

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
  // Segments of a buffer that lie behind each other: their elements in memory, and where these
  // begin on the wire within the chunk's bytes. With counts it is a single segment, whose count is
  // before its elements.
  struct Piece {
    std::byte* values = nullptr;
    std::size_t elements = 0;
    std::size_t wire = 0;
  };
  // What progress.h calls.
  struct Actions {
    SegmentExecutor& self;
    void apply(std::uint32_t arrival, Run run) const;
    void ready(std::uint32_t send, Run run) const { self.make_ready(send, run); }
  };

  [[nodiscard]] std::int64_t elements_of(std::uint32_t buffer) const {
    return static_cast<std::int64_t>(plan_.buffers()[buffer].bytes / element_);
  }
  // Elements of the chunk that one segment carries.
  [[nodiscard]] std::int64_t data_elements() const {
    return layout_.segment_elements - (layout_.counted ? 1 : 0);
  }
  [[nodiscard]] std::size_t count_segments(std::uint32_t buffer) const;
  [[nodiscard]] Piece piece(std::uint32_t buffer, Run segments) const;
  // Calls each(piece, segment) for the pieces of the run; the first segment of each.
  template <class Each>
  void for_pieces(std::uint32_t buffer, Run run, const Each& each) const;
  [[nodiscard]] Block block_for(std::uint32_t buffer) const;
  // Applies segments that have arrived; lets those that are lost have their turn.
  void apply(std::uint32_t arrival, Run run, bool lost);
  // Writes the segments, as they are now, to what sends of the version carry.
  void fill(std::uint32_t buffer, std::uint32_t version, Run run);
  void make_ready(std::uint32_t send, Run run);
  // Ends the arrival if its transfer is over and all of it had its turn.
  void look_at(std::uint32_t arrival);

  const RankPlan& plan_;
  DType type_;
  ReduceOp op_;
  std::size_t element_;
  Layout layout_;
  BlockSource blocks_;
  std::vector<std::byte*> memory_;  // [buffer]
  Progress<RunSet> progress_;
  std::vector<std::vector<std::uint16_t>> counts_;  // [buffer][segment], if they are counted
  std::vector<std::vector<bool>> forgone_;          // [buffer][segment]: its result did not arrive
  std::vector<Block> incoming_;                     // [arrival]
  std::vector<RunSet> lost_;                        // [arrival]: segments that will never come
  std::vector<bool> ended_;                         // [arrival]: its transfer is over
  std::vector<bool> over_;                          // [arrival]: … and all of it had its turn
  std::vector<std::vector<Block>> versions_;        // [buffer][version]: what its sends carry
  std::vector<std::vector<std::uint32_t>> users_;   // [buffer][version]: its sends, if not over
  std::vector<bool> sent_;                          // [send]: it is over
  std::vector<Ready> ready_;                        // those before next_ready_ were polled
  std::size_t next_ready_ = 0;
  std::vector<std::size_t> last_ready_;  // [send]: one above its last place in ready_, or 0
  std::size_t unfinished_;               // arrivals and sends that are not over
  std::size_t segments_wanted_ = 0;
  std::size_t segments_lost_ = 0;
};

}  // namespace thalweg::exec
