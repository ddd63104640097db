// Executor: runs one rank's part of a plan on the rank's memory, without I/O.
//
// It forwards bytes before their chunk is complete. For each arrival it counts a prefix of received
// bytes and a prefix of applied bytes; for each send, a prefix of bytes that have left. In one
// buffer
//
//   arrival k may be applied up to       the bytes of it that were received,
//                                        the bytes of arrival k − 1 that were applied, and
//                                        the bytes that have left of every send of version k;
//   a send of version k may leave up to  the bytes of arrival k − 1 that were applied
//                                        (k = 0: all bytes).
//
// So sums are made in the plan's order, no send sees a later version, and a relay sends on while it
// receives. Bytes that arrive before they may be applied are staged. An arrival is always taken:
// the network never has to wait for another transfer, so ranks cannot wait for each other in a
// cycle.
//
//   ready(i), sent(i, n)    the bytes of send i that may leave now; the report that n of them left
//   place(s), placed(s, n)  memory to receive the next bytes of slot s into; the report that n came
//   consume(s, bytes)       takes the next bytes of slot s when place(s) is empty
//   poll_ready(i)           sends that have more to send than when they were last polled
//   done()                  everything has arrived, been applied and left
//
// Invariants:
// 1. No byte outside the buffers' memory is written, and none of it after done().
// 2. The bytes of a send do not change until they have left.
// 3. After the first run of a plan nothing is allocated, except when more has to be staged than
//    ever before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <thalweg/types.h>

#include "exec/rank_plan.h"

namespace thalweg::exec {

class Executor {
 public:
  // Begins a run. `memory` has one place for each buffer of the plan, which holds this rank's
  // contribution. Plan and memory must outlive the run.
  void start(const RankPlan& plan, DType type, ReduceOp op, std::span<std::byte* const> memory);

  // The bytes of the send that may leave now. They do not change until sent() says that they left.
  [[nodiscard]] std::span<const std::byte> ready(std::uint32_t send) const;
  void sent(std::uint32_t send, std::size_t bytes);
  [[nodiscard]] bool sent_all(std::uint32_t send) const {
    return sent_[send] == buffer_of_send(send).bytes;
  }
  bool poll_ready(std::uint32_t& send);

  // These require that the slot has outstanding bytes.
  [[nodiscard]] std::span<std::byte> place(std::uint32_t slot) const;
  void placed(std::uint32_t slot, std::size_t bytes);
  void consume(std::uint32_t slot, std::span<const std::byte> bytes);
  // Bytes of the slot that were not received yet.
  [[nodiscard]] std::size_t outstanding(std::uint32_t slot) const {
    return buffer_of_slot(slot).bytes - arrivals_[slot].received;
  }

  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  // What the protocol between the ranks asks (proto/collective/call.h).
  // Whether the slot's bytes come from `source`, and at least so many of them are outstanding.
  [[nodiscard]] bool takes(Rank source, std::uint32_t slot, std::uint32_t bytes) const {
    return slot < plan_->arrivals().size() && plan_->arrivals()[slot].source == source &&
           bytes <= outstanding(slot);
  }
  // Whether some bytes for the rank have not left.
  [[nodiscard]] bool has_data_for(Rank target) const;
  // Whether bytes from the rank are outstanding, or some for it have not left.
  [[nodiscard]] bool needs(Rank rank) const;
  // The source of the first slot with outstanding bytes; else the first target for which bytes have
  // not left.
  [[nodiscard]] std::optional<Rank> waits_for() const;
  [[nodiscard]] const RankPlan& plan() const { return *plan_; }
  // Appends how far the run has come. Equal strings mean equal behaviour, if plan and memory are
  // equal too. Requires that poll_ready() returned false.
  void encode_state(std::string& out) const;

 private:
  struct ArrivalState {
    std::size_t received = 0;
    std::size_t applied = 0;
    // Holds the bytes [applied, received) of the chunk. stage[0] is byte stage_base of the chunk.
    std::vector<std::byte> stage;
    std::size_t stage_base = 0;
  };

  [[nodiscard]] const RankPlan::Buffer& buffer_of_send(std::uint32_t send) const {
    return plan_->buffers()[plan_->sends()[send].buffer];
  }
  [[nodiscard]] const RankPlan::Buffer& buffer_of_slot(std::uint32_t slot) const {
    return plan_->buffers()[plan_->arrivals()[slot].buffer];
  }
  // How far the arrival may be applied according to the buffer's other transfers.
  [[nodiscard]] std::size_t allowed(std::uint32_t slot) const;
  // How many more bytes of the arrival can be applied now; whole elements for sums.
  [[nodiscard]] std::size_t appliable(std::uint32_t slot) const;
  // Applies [applied, applied + bytes.size()) of the arrival.
  void apply(std::uint32_t slot, std::span<const std::byte> bytes);
  // Applies the staged bytes that may be applied now.
  void apply_staged(std::uint32_t slot);
  // More of the arrival was applied: lets its followers go on.
  void after_applied(std::uint32_t slot);
  void mark_ready(std::uint32_t send);

  const RankPlan* plan_ = nullptr;
  DType type_ = DType::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
  std::size_t element_ = 4;
  std::vector<std::byte*> memory_;      // [buffer]
  std::vector<ArrivalState> arrivals_;  // [slot]
  std::vector<std::size_t> sent_;       // [send]
  std::vector<char> marked_;            // [send]: it is in marked_sends_
  std::vector<std::uint32_t> marked_sends_;
  std::size_t unfinished_ = 0;  // sends and arrivals that are not complete
};

}  // namespace thalweg::exec
