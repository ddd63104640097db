// DlcpReceiver: the receiving end of one transfer. It knows which segments have arrived, and
// decides when they are enough. DlcpEndpoint owns it.
//
// The transfer ends
//   at the target: no more than target.allowed_missing() segments are missing; or
//   when patience is spent and the bound is kept, that is, no more than bound.allowed_missing() are
//     missing. Patience is the time that the missing segments (down to the target) would take at
//     the pace of those that arrived, or twice the longest gap between two arrivals if that is
//     longer. It is spent when nothing has arrived for so long, or when the data that a stop spoke
//     of should have arrived and the round trip of asking would take longer.
// The receiver asks for everything missing when the data that a stop spoke of should have arrived
// (PathMeter) and either the bound is not kept or asking is worth the round trip.
// Without a target of its own the target is the bound, and this is the paper's rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/grants.h"
#include "proto/dlcp/path_meter.h"
#include "proto/dlcp/transfer.h"
#include "proto/fifo.h"
#include "tensor/partition.h"
#include "wire/control_message.h"

namespace thalweg::proto {

class DlcpReceiver {
 public:
  enum class Action : std::uint8_t { kWait, kAsk, kFinish };

  DlcpReceiver(TransferHandle handle, const TransferSpec& spec, const tensor::Partition& partition,
               std::uint32_t transfer, Time now);

  // The transfer is one of those that the host's scheduler grants.
  void schedule(GrantScheduler::Ticket ticket) { ticket_ = ticket; }
  [[nodiscard]] const std::optional<GrantScheduler::Ticket>& ticket() const { return ticket_; }
  // The last segment of the first round that arrived was the reached()-th that left.
  [[nodiscard]] std::uint32_t reached() const { return reached_; }
  [[nodiscard]] Bytes segment_size() const { return partition_.segment_size(); }
  [[nodiscard]] std::int32_t needed() const { return partition_.segment_count() - bound_missing_; }

  [[nodiscard]] wire::ReadyMessage ready() const;
  Placement on_data(const wire::DataHeader& header, Time now);
  // The last placement reached the bound or the target, so the caller must call action().
  [[nodiscard]] bool mark_reached() const {
    return missing() == bound_missing_ || missing() <= target_missing_;
  }
  // Returns false, and changes nothing, if the message makes no sense for this transfer.
  bool on_stop(const wire::StopMessage& message, Time now);

  // What to do now. On kWait, wake() says when to call this again.
  Action action(const PathMeter& path, const PatienceOptions& patience, Duration round_trip,
                Time now);
  [[nodiscard]] Time wake() const { return wake_; }
  // A packet of any transfer, in this queue or a less urgent one, with this sequence number or a
  // higher one may change what action() returns before wake(). None: only packets of this transfer
  // may.
  struct Witness {
    std::uint64_t sequence = 0;
    std::uint8_t queue = 0;
  };
  [[nodiscard]] std::optional<Witness> awaited_witness() const;
  // Starts the next round: pushes one or more messages that list all missing segments. Call
  // action() afterwards for the next wake().
  void ask(Fifo<wire::ControlMessage>& out, Duration round_trip, Time now);

  [[nodiscard]] TransferHandle handle() const { return handle_; }
  [[nodiscard]] const TransferSpec& spec() const { return spec_; }
  [[nodiscard]] std::uint32_t transfer() const { return transfer_; }
  [[nodiscard]] Time deadline() const { return started_ + spec_.deadline; }
  [[nodiscard]] std::int32_t arrived() const { return static_cast<std::int32_t>(arrived_.count()); }
  [[nodiscard]] std::int32_t missing() const { return partition_.segment_count() - arrived(); }
  // So many rounds in a row brought nothing, though the sender said of each that it sent its data.
  [[nodiscard]] std::uint32_t empty_rounds() const { return empty_rounds_; }
  [[nodiscard]] TransferOutcome event(const std::optional<Error>& error, Time now) const;

 private:
  [[nodiscard]] Duration patience(const PatienceOptions& options) const;

  TransferHandle handle_;
  TransferSpec spec_;
  tensor::Partition partition_;
  std::uint32_t transfer_;
  Time started_;
  std::int32_t bound_missing_;
  std::int32_t target_missing_;
  Bitmap arrived_;
  std::optional<GrantScheduler::Ticket> ticket_;
  std::size_t first_segment_;
  std::uint32_t reached_ = 0;
  Time first_arrival_;
  Time last_arrival_;
  Duration longest_gap_;  // between two arrivals
  // Patience counts from here: the last arrival, or the earliest time at which an answer to the
  // last request can arrive.
  Time quiet_since_;
  std::uint32_t round_ = 0;
  std::uint64_t asked_ = 0;  // segments requested, over all rounds
  // The sender has sent data or a stop, so it agrees about the tensor.
  bool agreed_ = false;
  // The stop of this round; none until it arrives.
  std::optional<PathMeter::Stopped> stopped_;
  std::int32_t arrived_before_round_ = 0;
  std::uint32_t empty_rounds_ = 0;  // rounds in a row that brought nothing
  Time wake_;
};

}  // namespace thalweg::proto
