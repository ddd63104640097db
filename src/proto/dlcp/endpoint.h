// DlcpEndpoint: one end of all transfers with one peer, in both directions, without I/O.
//
// A transfer (section 3.2.1; docs/protocol-dlcp.md has the state tables):
//
//   receiver                                   sender
//   start_recv ──ready──────────────────────▶ (start_send, in any order)
//              ◀═════════════════════ data ══  at the rate of RateControl
//              ──report, every 200 µs───────▶
//              ◀──────────────────────stop───  when all is sent
//              ──resend, if below the bound─▶  and again data, stop
//              ──finish, at the bound───────▶
//              ◀───────────────────confirm───
//
// Data may be lost, doubled and late by any amount; messages are neither, but may overtake data and
// be overtaken by it.
//
// Verbs, called by one driver that owns the sockets and the clock. `now` never goes back.
//   on_data, on_data_end, on_control, on_timeout   what happened
//   poll_data, poll_control, poll_event   what to do about it
//   next_timeout   when to call on_timeout and poll_data again
// After any call that is not a poll, call poll_control and poll_event until they return false,
// poll_data as long as the line takes more, and look at next_timeout. poll_data may make messages
// (a stop), so poll_control comes after it too.
//
// Invariants:
// 1. Every transfer that was started ends in exactly one event, at its deadline at the latest, if
//    on_timeout is called in time.
// 2. A receiver succeeds only when no more than bound.allowed_missing() segments are missing.
// 3. No segment is placed twice, or after its transfer's event.
// 4. Once all transfers have ended and the peer has heard of it, idle() holds and nothing is kept.
// 5. Neither on_data nor poll_data allocates, unless a queue is longer than it ever was.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "proto/dlcp/options.h"
#include "proto/dlcp/path_meter.h"
#include "proto/dlcp/path_shares.h"
#include "proto/dlcp/rate_control.h"
#include "proto/dlcp/receiver.h"
#include "proto/dlcp/sender.h"
#include "proto/dlcp/transfer.h"
#include "proto/fifo.h"
#include "wire/control_message.h"
#include "wire/data_header.h"

namespace thalweg {

struct DlcpCounters {
  std::uint64_t segments_sent = 0;  // retransmissions included
  std::uint64_t segments_retransmitted = 0;
  std::uint64_t segments_placed = 0;
  std::uint64_t marks = 0;  // packets that arrived marked
  // Dropped on arrival, by verdict.
  std::uint64_t duplicate = 0;
  std::uint64_t late = 0;
  std::uint64_t stale = 0;
  std::uint64_t bad_segment = 0;
  std::uint64_t bad_length = 0;
  std::uint64_t bad_messages = 0;    // messages that no correct peer sends here
  std::uint64_t stale_messages = 0;  // about transfers that are over
  std::uint64_t requests = 0;        // for retransmission, made
  std::uint64_t reports_sent = 0;
  std::uint64_t reports_received = 0;
};

class DlcpEndpoint {
 public:
  // Requires options that validate.
  explicit DlcpEndpoint(const DlcpOptions& options);

  // Fails on a spec that is not allowed, too many transfers and a lost connection; then nothing was
  // started.
  Result<TransferHandle> start_send(const TransferSpec& spec, TagSource tags, Time now);
  Result<TransferHandle> start_recv(const TransferSpec& spec, Time now);

  // Ends the transfer with a failure, here and at the peer. Of one that is over: nothing.
  void cancel(TransferHandle handle, std::string_view cause, Time now);

  // The peer is gone: everything fails with this cause, and nothing can be started any more.
  void connection_lost(std::string_view cause, Time now);

  // `marked`: a switch marked the packet as congested. `path`: by which of the sender's paths it
  // came (DataBatch::path), for drivers that have several.
  Placement on_data(const DataHeader& header, bool marked, Time now, std::uint32_t path = 0);
  // A message of the peer's is here that left behind all its data below `end_sequence`, in the
  // queue of the last of it. What did not come before it is likely lost. Drivers need not know.
  void on_data_end(std::uint64_t end_sequence, Time now);
  void on_control(const ControlMessage& message, Time now);
  void on_timeout(Time now);

  // At most `max_segments` (above 0) that may leave now. The driver must send them: they count as
  // sent.
  bool poll_data(Time now, std::uint32_t max_segments, DataBatch& out);
  bool poll_control(ControlMessage& out);
  bool poll_event(TransferOutcome& out);

  // None: nothing will happen by itself. A time that has come: call on_timeout, and poll_data gives
  // data. Timers may turn out to be early; on_timeout then sets the next.
  [[nodiscard]] std::optional<Time> next_timeout() const;
  // The same for a driver whose line is busy: without the time at which data may leave.
  [[nodiscard]] std::optional<Time> next_timer() const;
  // There is data that may leave now, for a driver whose line was busy.
  [[nodiscard]] bool data_ready(Time now) const;

  // So many paths lead to the peer from now on, none of which is known; 1 until this is called.
  // Requires 1 <= paths <= kMaxReportPaths.
  void set_paths(std::uint32_t paths, Time now) { shares_.set_count(paths, now); }
  [[nodiscard]] const PathShares& path_shares() const { return shares_; }

  // Nothing is in flight, waiting, or yet to be polled.
  [[nodiscard]] bool idle() const;
  // Nothing of ours is in flight or yet to be told; the peer may still wait for us to send.
  [[nodiscard]] bool settled() const;
  [[nodiscard]] std::size_t transfers() const;
  [[nodiscard]] const DlcpOptions& options() const { return options_; }
  [[nodiscard]] const DlcpCounters& counters() const { return counters_; }
  [[nodiscard]] const RateControl& rate_control() const { return rate_; }
  // For a driver that reconnects (DlcpOptions::first_transfer).
  [[nodiscard]] std::uint32_t next_transfer() const { return next_transfer_; }

 private:
  // A receiver's number leads to its slot by the low bits, so no two in flight share those. There
  // are always more slots than receivers, and a power of two.
  struct Slot {
    std::unique_ptr<DlcpReceiver> receiver;
    bool closing = false;  // finished, and the confirm is outstanding
    std::uint32_t transfer = 0;
    Time until;     // closing: forgotten then at the latest
    Time finished;  // closing: since then
    [[nodiscard]] bool in_use() const { return closing || receiver != nullptr; }
  };

  static constexpr std::uint64_t kNoWitness = ~std::uint64_t{0};

  [[nodiscard]] Result<Partition> check(const TransferSpec& spec, std::size_t in_flight) const;
  TransferHandle next_handle() { return TransferHandle{++last_handle_}; }

  void on_message(const ReadyMessage& message, Time now);
  void on_message(const StopMessage& message, Time now);
  void on_message(const ResendMessage& message, Time now);
  void on_message(const FinishMessage& message, Time now);
  void on_message(const ConfirmMessage& message, Time now);
  void on_message(const CancelMessage& message, Time now);
  void on_message(const ReportMessage& message, Time now);

  // Senders.
  // The one that the peer calls by this number, or null.
  [[nodiscard]] DlcpSender* find_sender(std::uint32_t transfer);
  void match(DlcpSender& sender, const ReadyMessage& ready, Time now);
  void begin_round(DlcpSender& sender);
  void end_send(DlcpSender& sender, std::int32_t arrived, const std::string& cause, Time now);
  void tell_receiver(const DlcpSender& sender, CancelReason reason, std::string text);
  void reset_rate(void (RateControl::*reset)(), Time now);

  // Receivers.
  [[nodiscard]] Slot& slot_of(std::uint32_t transfer) {
    return slots_[transfer & (slots_.size() - 1)];
  }
  // The slot in use by this transfer, or null.
  [[nodiscard]] Slot* find_slot(std::uint32_t transfer);
  Slot& take_slot();
  void advance(Slot& slot, Time now);
  void finish(Slot& slot, Time now);
  void fail_recv(Slot& slot, const std::string& cause, Time now);
  void tell_sender(const Slot& slot, CancelReason reason, std::string text);

  void wake_at(Time time) { wake_ = wake_ ? std::min(*wake_, time) : time; }
  void time_out_senders(Time now);
  void time_out_receivers(Time now);
  [[nodiscard]] std::string describe(Direction direction, std::uint64_t key,
                                     const std::string& cause) const;

  DlcpOptions options_;
  RateControl rate_;
  Pacer pacer_;
  PathMeter path_;
  PathShares shares_;
  DlcpCounters counters_;

  std::vector<std::unique_ptr<DlcpSender>> senders_;
  std::vector<DlcpSender*> sending_;   // those with data to send; most urgent, then oldest, first
  std::vector<ReadyMessage> waiting_;  // from receivers whose sender has not started
  std::uint64_t next_sequence_ = 0;

  std::vector<Slot> slots_;
  std::size_t slots_in_use_ = 0;
  std::size_t receivers_ = 0;
  std::uint32_t next_transfer_;
  std::optional<Duration> round_trip_;  // from a finish to its confirm, smoothed

  Fifo<ControlMessage> messages_;
  Fifo<TransferOutcome> events_;
  std::optional<Time> wake_;            // no later than any timer of a transfer
  std::uint64_t witness_ = kNoWitness;  // a packet from here on may let a receiver ask earlier
  std::uint64_t last_handle_ = 0;
  std::string lost_;  // the connection's end; empty while it lives
};

}  // namespace thalweg
