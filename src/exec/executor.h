// Executor: runs one rank's part of a plan on the rank's memory, without I/O.
//
// It cuts through: everything moves by bytes, not by chunks. Of each arrival a prefix has been
// received and a prefix applied; of each send a prefix has left. In one buffer
//
//   arrival k may be applied up to   what of it was received,
//                                    what of arrival k − 1 was applied, and
//                                    what of every send of version k has left;
//   a send of version k may leave up to what of arrival k − 1 was applied (k = 0: all).
//
// So sums are made in the plan's order, no send sees a later version, and a relay sends on while
// it receives. What arrives before it may be applied is staged. An arrival is always taken: the
// network never has to wait for another transfer, and no cycle of ranks can wait for each other.
//
//   ready(i), sent(i, n)            what of send i may leave now, and that it left
//   place(s), placed(s, n)          memory that the next bytes of slot s may be received into;
//   empty consume(s, bytes)               when they must be given to consume() instead
//   poll_ready(i)                   sends with more to send than when they were last polled
//   done()                          all has arrived, been applied and left
//
// Invariants:
// 1. No byte outside the buffers' memory is written, and none of it after done().
// 2. What a send carries is not changed until it has left.
// 3. After the first use with a plan nothing is allocated, except staging that was never so large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <thalweg/types.h>

#include "exec/rank_plan.h"

namespace thalweg {

class Executor {
 public:
  // Begins with the memory of each buffer of the plan, which holds this rank's contribution. Plan
  // and memory must outlive the run.
  void start(const RankPlan& plan, DType type, ReduceOp op, std::span<std::byte* const> memory);

  // Bytes of the send that may leave now. They stay as they are until sent() says they left.
  [[nodiscard]] std::span<const std::byte> ready(std::uint32_t send) const;
  void sent(std::uint32_t send, std::size_t bytes);
  [[nodiscard]] bool sent_all(std::uint32_t send) const {
    return sent_[send] == buffer_of_send(send).bytes;
  }
  bool poll_ready(std::uint32_t& send);

  // Requires bytes that are still outstanding of the slot.
  [[nodiscard]] std::span<std::byte> place(std::uint32_t slot) const;
  void placed(std::uint32_t slot, std::size_t bytes);
  void consume(std::uint32_t slot, std::span<const std::byte> bytes);
  // Not yet received.
  [[nodiscard]] std::size_t outstanding(std::uint32_t slot) const {
    return buffer_of_slot(slot).bytes - arrivals_[slot].received;
  }

  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  [[nodiscard]] const RankPlan& plan() const { return *plan_; }

 private:
  struct ArrivalState {
    std::size_t received = 0;
    std::size_t applied = 0;
    // [applied, received), unless that is empty. stage[0] is byte stage_base of the chunk.
    std::vector<std::byte> stage;
    std::size_t stage_base = 0;
  };

  [[nodiscard]] const RankPlan::Buffer& buffer_of_send(std::uint32_t send) const {
    return plan_->buffers()[plan_->sends()[send].buffer];
  }
  [[nodiscard]] const RankPlan::Buffer& buffer_of_slot(std::uint32_t slot) const {
    return plan_->buffers()[plan_->arrivals()[slot].buffer];
  }
  // How far the arrival may be applied as far as other transfers go.
  [[nodiscard]] std::size_t allowed(std::uint32_t slot) const;
  // How many more bytes of it can be applied now: of sums, whole elements.
  [[nodiscard]] std::size_t appliable(std::uint32_t slot) const;
  // Applies [applied, applied + bytes.size()) of the arrival.
  void apply(std::uint32_t slot, std::span<const std::byte> bytes);
  // Applies what may be applied of what is staged.
  void apply_staged(std::uint32_t slot);
  // What follows from more having been applied.
  void after_applied(std::uint32_t slot);
  void mark_ready(std::uint32_t send);

  const RankPlan* plan_ = nullptr;
  DType type_ = DType::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t element_ = 4;
  std::vector<std::byte*> memory_;      // [buffer]
  std::vector<ArrivalState> arrivals_;  // [slot]
  std::vector<std::size_t> sent_;       // [send]
  std::vector<char> marked_;            // [send]: is in marked_sends_
  std::vector<std::uint32_t> marked_sends_;
  std::size_t unfinished_ = 0;  // sends and arrivals
};

}  // namespace thalweg
