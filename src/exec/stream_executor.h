// StreamExecutor: runs one rank's part of a plan on the rank's memory, without I/O. It is for
// streams, which carry the bytes of a transfer in order.
//
// What may be applied and sent is decided by progress.h, byte by byte: a rank forwards bytes before
// their chunk is complete. Sends read the rank's memory itself. Bytes that arrive before they may
// be applied are staged.
//
//   ready(i), sent(i, n)    the bytes of send i that may leave now; the report that n of them left
//   place(s), placed(s, n)  memory to receive the next bytes of arrival s into; the report that n
//   came consume(s, bytes)       takes the next bytes of arrival s when place(s) is empty
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

#include "exec/progress.h"
#include "exec/rank_plan.h"

namespace thalweg::exec {

class StreamExecutor {
 public:
  // Begins a run. `memory` has one place for each buffer of the plan, which holds this rank's
  // contribution. Plan and memory must outlive the run.
  void start(const RankPlan& plan, DType type, ReduceOp op, std::span<std::byte* const> memory);

  // The bytes of the send that may leave now. They do not change until sent() says that they left.
  [[nodiscard]] std::span<const std::byte> ready(std::uint32_t send) const;
  void sent(std::uint32_t send, std::size_t bytes);
  [[nodiscard]] bool sent_all(std::uint32_t send) const {
    return sent_[send] == plan_->buffers()[plan_->sends()[send].buffer].bytes;
  }
  bool poll_ready(std::uint32_t& send);

  // These require that the arrival has outstanding bytes.
  [[nodiscard]] std::span<std::byte> place(std::uint32_t arrival) const;
  void placed(std::uint32_t arrival, std::size_t bytes);
  void consume(std::uint32_t arrival, std::span<const std::byte> bytes);
  // Bytes of the arrival that were not received yet.
  [[nodiscard]] std::size_t outstanding(std::uint32_t arrival) const {
    return plan_->buffers()[plan_->arrivals()[arrival].buffer].bytes - arrivals_[arrival].received;
  }

  [[nodiscard]] bool done() const { return unfinished_ == 0; }
  // What the protocol between the ranks asks (proto/collective/call.h).
  // Whether the arrival's bytes come from `source`, and at least so many of them are outstanding.
  [[nodiscard]] bool takes(Rank source, std::uint32_t arrival, std::uint32_t bytes) const {
    return arrival < plan_->arrivals().size() && plan_->arrivals()[arrival].source == source &&
           bytes <= outstanding(arrival);
  }
  // Whether some bytes for the rank have not left.
  [[nodiscard]] bool has_data_for(Rank target) const;
  // Whether bytes from the rank are outstanding, or some for it have not left.
  [[nodiscard]] bool needs(Rank rank) const;
  // The source of the first arrival with outstanding bytes; else the first target for which bytes
  // have not left.
  [[nodiscard]] std::optional<Rank> waits_for() const;
  [[nodiscard]] const RankPlan& plan() const { return *plan_; }
  // Appends how far the run has come. Equal strings mean equal behaviour, if plan and memory are
  // equal too. Requires that poll_ready() returned false.
  void encode_state(std::string& out) const;

 private:
  struct Arrival {
    std::size_t received = 0;  // bytes
    // Bytes that could not be applied when they came: those from byte `staged` of the chunk on.
    // Empty: none are left.
    std::vector<std::byte> stage;
    std::size_t staged = 0;
  };
  // What progress.h calls. `taken`: the arrival whose bytes have just come. They are at `bytes`,
  // the first of them is byte `from` of the chunk; null: they are in the rank's memory.
  struct Actions {
    StreamExecutor& self;
    std::optional<std::uint32_t> taken = {};
    std::size_t from = 0;
    const std::byte* bytes = nullptr;

    void apply(std::uint32_t arrival, Run run) const;
    void ready(std::uint32_t send, Run /*run*/) const { self.mark_ready(send); }
  };

  // Tells progress_ which elements of the arrival are complete.
  void come(std::uint32_t arrival, const Actions& actions);
  void mark_ready(std::uint32_t send);

  const RankPlan* plan_ = nullptr;
  DType type_ = DType::kFloat32;
  ReduceOp op_ = ReduceOp::kSum;
  unsigned shift_ = 2;  // an element has 2^shift_ bytes
  Progress<Prefix> progress_;
  std::vector<std::byte*> memory_;  // [buffer]
  std::vector<Arrival> arrivals_;   // [arrival]
  std::vector<std::size_t> sent_;   // [send], in bytes
  std::vector<char> marked_;        // [send]: it is in marked_sends_
  std::vector<std::uint32_t> marked_sends_;
  std::size_t unfinished_ = 0;  // sends and arrivals that are not complete
};

}  // namespace thalweg::exec
