// DlcpSender: the sending end of one transfer. It knows which segments are still to be sent;
// DlcpEndpoint, which owns it, decides when.
//
// Invariants:
// 1. The state is kSending from begin() or a complete request until stop(), which follows the last
//    segment.
// 2. Within a round, segments of one tag leave in order, except for 3. Segments of different tags
//    may leave a few batches earlier or later, so that each batch has one tag and is full.
// 3. With a loss bound, the first round of each transfer begins at a different segment and wraps
//    around at the end: a receiver that has enough early does not always lose the same segments.
// 4. Of a gradual transfer, only segments that were offered leave, in any order in which they are
//    offered. Its first round ends when all of them were, and have left.
// 5. Where the receiver gives grants, no more of the first round has left than is granted. What a
//    receiver asks for again needs no grant.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/send_order.h"
#include "proto/dlcp/transfer.h"
#include "tensor/partition.h"
#include "wire/control_message.h"

namespace thalweg::proto {

// The segment with which the first round of a transfer begins, of `segments` (invariant 3).
[[nodiscard]] std::size_t first_segment(std::uint32_t transfer, std::size_t segments,
                                        LossBound bound);

class DlcpSender {
 public:
  enum class State : std::uint8_t {
    kWaiting,  // for the receiver to be ready
    kSending,
    kStopped,  // all is sent; the receiver will ask for more or finish
  };

  DlcpSender(TransferHandle handle, const TransferSpec& spec, const tensor::Partition& partition,
             TagSource tags, Time now);

  // The receiver is ready, and gave the transfer this number. `first`: segments that may leave
  // before a grant, or wire::kUngranted.
  void begin(std::uint32_t transfer, std::uint32_t first = wire::kUngranted);
  // These segments may leave from now on. Requires a gradual transfer that has them. Some may have
  // been offered before.
  void offer(Bitmap::Run segments);
  // Segments of a gradual transfer that were not offered yet.
  [[nodiscard]] std::size_t unoffered() const { return offered_.size() - offered_.count(); }
  // Takes the next batch, of at most `limit` segments, which leaves now. Requires may_send().
  void take(std::uint32_t limit, std::uint64_t first_sequence, Time now, DataBatch& out);
  // Some segments that were offered have not left in this round.
  [[nodiscard]] bool data_left() const { return state_ == State::kSending && !sent_.full(); }
  // The whole round has been taken, and stop() is due.
  [[nodiscard]] bool round_over() const {
    return state_ == State::kSending && sent_.full() && unoffered() == 0;
  }
  // Ends the round. `end_sequence` is one above the sequence number of its last packet. Requires
  // round_over().
  wire::StopMessage stop(std::uint64_t end_sequence);
  // Returns false, and changes nothing, if the message makes no sense for this transfer.
  bool on_resend(const wire::ResendMessage& message);

  // Returns false, and changes nothing, if the receiver gives no grants or no such grant is
  // possible.
  bool on_grant(std::uint32_t segments);
  // The receiver gives grants for this transfer.
  [[nodiscard]] bool scheduled() const { return granted_ != wire::kUngranted; }
  // Segments that may leave now.
  [[nodiscard]] std::uint32_t allowance() const;
  [[nodiscard]] bool may_send() const { return allowance() > 0; }
  // There is data left, and it waits for a grant.
  [[nodiscard]] bool blocked() const { return data_left() && !may_send(); }
  [[nodiscard]] wire::WantMessage want(bool busy) const;
  // Where this transfer stands among others.
  [[nodiscard]] SendKey key(const TransferOrder& order, Bandwidth line_rate,
                            std::uint64_t seed) const;

  // The endpoint's notes: the bytes it offered to its host, whether the receiver knows that this
  // host is busy, whether the transfer waits for a grant, when to ask for one and how long after
  // that to ask again.
  struct Waiting {
    std::int64_t offered = 0;
    bool told_busy = false;
    bool blocked = false;
    Time ask_at;
    Duration ask_after;
  };
  Waiting& waiting() { return waiting_; }

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] TransferHandle handle() const { return handle_; }
  [[nodiscard]] const TransferSpec& spec() const { return spec_; }
  [[nodiscard]] const tensor::Partition& partition() const { return partition_; }
  [[nodiscard]] std::uint32_t transfer() const { return transfer_; }
  [[nodiscard]] Time deadline() const { return started_ + spec_.deadline; }
  [[nodiscard]] TransferOutcome event(std::int32_t arrived, const std::optional<Error>& error,
                                      Time now) const;

 private:
  [[nodiscard]] bool allowed(const wire::ResendMessage& message) const;

  TransferHandle handle_;
  TransferSpec spec_;
  tensor::Partition partition_;
  TagSource tags_;
  Time started_;
  State state_ = State::kWaiting;
  std::uint32_t transfer_ = 0;
  std::uint32_t round_ = 0;
  std::uint64_t retransmissions_ = 0;
  std::uint32_t granted_ = wire::kUngranted;
  std::uint32_t taken_ = 0;  // segments of the first round that have left
  Waiting waiting_;
  // In this round. Segments that it need not send, or may not send yet, count as sent.
  Bitmap sent_;
  Bitmap offered_;          // of a gradual transfer; otherwise empty
  std::size_t cursor_ = 0;  // where the search for the next unsent segment begins
  std::uint32_t last_sent_us_ = 0;
  std::uint8_t queue_ = 0;  // the least urgent queue of this round's segments so far
};

}  // namespace thalweg::proto
