// The receiving end of one transfer: what has arrived, and when that is enough.
//
// It ends
//   at the target: no more is missing than target.allowed_missing();
//   for want of patience, once no more is missing than bound.allowed_missing(): when nothing has
//     arrived for the time that the missing segments (down to the target) would take at the pace of
//     those that came, or twice the longest gap between two that came, if that is longer; or when
//     the stop has come and the round trip of asking would take longer than that;
// and asks for everything missing when the data that a stop spoke of should have arrived
// (PathMeter) and the bound is not kept, or asking is worth the round trip.
// Without a target of its own, which is the bound then, this is the paper's rule.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/bitmap.h"
#include "base/units.h"
#include "proto/dlcp/path_meter.h"
#include "proto/dlcp/transfer.h"
#include "proto/fifo.h"
#include "tensor/partition.h"
#include "wire/control_message.h"

namespace thalweg {

class DlcpReceiver {
 public:
  enum class Action : std::uint8_t { kWait, kAsk, kFinish };

  DlcpReceiver(TransferHandle handle, const TransferSpec& spec, const Partition& partition,
               std::uint32_t transfer, Time now);

  [[nodiscard]] ReadyMessage ready() const;
  Placement on_data(const DataHeader& header, Time now);
  // The last placement brought the bound or the target: ask action().
  [[nodiscard]] bool mark_reached() const {
    return missing() == bound_missing_ || missing() <= target_missing_;
  }
  // False: makes no sense for this transfer, and changes nothing.
  bool on_stop(const StopMessage& message, Time now);

  // What to do now; on kWait, wake() says when to ask again.
  Action action(const PathMeter& path, const PatienceOptions& patience, Duration round_trip,
                Time now);
  [[nodiscard]] Time wake() const { return wake_; }
  // A packet with this sequence number or a higher one may make action() act before wake(). None:
  // no packet does, except those of this transfer.
  [[nodiscard]] std::optional<std::uint64_t> awaited_witness() const;
  // Starts the next round: one or more messages that list all that is missing. Ask action() again
  // for the next wake().
  void ask(Fifo<ControlMessage>& out, Duration round_trip, Time now);

  [[nodiscard]] TransferHandle handle() const { return handle_; }
  [[nodiscard]] const TransferSpec& spec() const { return spec_; }
  [[nodiscard]] std::uint32_t transfer() const { return transfer_; }
  [[nodiscard]] Time deadline() const { return started_ + spec_.deadline; }
  [[nodiscard]] std::int32_t arrived() const { return static_cast<std::int32_t>(arrived_.count()); }
  [[nodiscard]] std::int32_t missing() const { return partition_.segment_count() - arrived(); }
  [[nodiscard]] TransferOutcome event(std::string error, Time now) const;

 private:
  [[nodiscard]] Duration patience(const PatienceOptions& options) const;

  TransferHandle handle_;
  TransferSpec spec_;
  Partition partition_;
  std::uint32_t transfer_;
  Time started_;
  std::int32_t bound_missing_;
  std::int32_t target_missing_;
  Bitmap arrived_;
  Time first_arrival_;
  Time last_arrival_;
  Duration longest_gap_;  // between two arrivals
  Time quiet_since_;  // patience counts from here: the last arrival, or when an answer could come
  std::uint32_t round_ = 0;
  std::uint64_t asked_ = 0;  // segments, over all rounds
  bool agreed_ = false;      // the sender holds the same tensor: it has sent something of it
  // Of this round; none while it is being sent.
  std::optional<PathMeter::Stopped> stopped_;
  std::int32_t arrived_before_round_ = 0;
  std::uint32_t empty_rounds_ = 0;
  Time wake_;
};

}  // namespace thalweg
