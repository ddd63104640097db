// The sending end of one transfer: which segments are still to be sent. DlcpEndpoint decides when.
//
// Invariants:
// 1. kSending from begin() or a complete request until stop(), which follows the last segment.
// 2. Segments of one tag leave in order, but for 3, within a round; others may leave a few batches
//    earlier or later, so that each batch is of one tag and full.
// 3. With a loss bound the first round begins at another segment each time, and goes on at the
//    start after the end: a receiver that has enough early does not always lose the same ones.
#pragma once

#include <cstdint>
#include <string>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/transfer.h"
#include "tensor/partition.h"
#include "wire/control_message.h"

namespace thalweg {

class DlcpSender {
 public:
  enum class State : std::uint8_t {
    kWaiting,  // for the receiver
    kSending,
    kStopped,  // all is sent: until the receiver asks for more or has enough
  };

  DlcpSender(TransferHandle handle, const TransferSpec& spec, const Partition& partition,
             TagSource tags, Time now);

  // The receiver is ready, and calls the transfer by this number.
  void begin(std::uint32_t transfer);
  // The next batch, of at most `limit` segments, which leaves now. Requires data_left().
  void take(std::uint32_t limit, std::uint64_t first_sequence, Time now, DataBatch& out);
  [[nodiscard]] bool data_left() const { return state_ == State::kSending && !sent_.full(); }
  // All of this round has been taken; its last packet has the sequence number below
  // `end_sequence`. Requires kSending and not data_left().
  StopMessage stop(std::uint64_t end_sequence);
  // False: makes no sense for this transfer, and changes nothing.
  bool on_resend(const ResendMessage& message);

  [[nodiscard]] State state() const { return state_; }
  [[nodiscard]] TransferHandle handle() const { return handle_; }
  [[nodiscard]] const TransferSpec& spec() const { return spec_; }
  [[nodiscard]] const Partition& partition() const { return partition_; }
  [[nodiscard]] std::uint32_t transfer() const { return transfer_; }
  [[nodiscard]] Time deadline() const { return started_ + spec_.deadline; }
  // Sent first: the more urgent, then the older.
  [[nodiscard]] bool before(const DlcpSender& other) const;
  [[nodiscard]] TransferOutcome event(std::int32_t arrived, std::string error, Time now) const;

 private:
  [[nodiscard]] bool allowed(const ResendMessage& message) const;

  TransferHandle handle_;
  TransferSpec spec_;
  Partition partition_;
  TagSource tags_;
  Time started_;
  State state_ = State::kWaiting;
  std::uint32_t transfer_ = 0;
  std::uint32_t round_ = 0;
  std::uint64_t retransmissions_ = 0;
  Bitmap sent_;             // of this round; what it need not send counts as sent
  std::size_t cursor_ = 0;  // the next one, if it is not sent yet
  std::uint32_t last_sent_us_ = 0;
};

}  // namespace thalweg
