// DlcpEndpoint: this host's end of all transfers with one peer, in both directions, without I/O.
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
// Data may be lost, duplicated and late by any amount. Messages are neither lost nor duplicated,
// but may overtake data and be overtaken by it.
//
// One driver, which owns the sockets and the clock, calls these verbs; `now` never goes back.
//   on_data, on_data_end, on_control, on_timeout   what happened
//   poll_data, poll_control, poll_event            what to do about it
//   next_timeout                                   when to call on_timeout and poll_data again
// After any call that is not a poll, the driver calls poll_control and poll_event until they return
// false, calls poll_data as long as the line takes more, and reads next_timeout. poll_data may
// produce a message (a stop), so poll_control follows it too.
//
// Invariants:
// 1. Every transfer that was started ends in exactly one event, at its deadline at the latest, if
//    on_timeout is called in time.
// 2. A receiver succeeds only when no more than bound.allowed_missing() segments are missing.
// 3. No segment is placed twice, or after its transfer's event.
// 4. Once all transfers have ended and the peer knows it, idle() holds and no state of them is
// kept.
// 5. Neither on_data nor poll_data allocates, unless a queue grows longer than it ever was.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "proto/dlcp/grants.h"
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

namespace thalweg::proto {

struct DlcpCounters {
  std::uint64_t segments_sent = 0;  // retransmissions included
  std::uint64_t segments_retransmitted = 0;
  std::uint64_t segments_placed = 0;
  std::uint64_t marks = 0;  // packets that arrived with a congestion mark
  // Packets dropped on arrival, by verdict:
  std::uint64_t duplicate = 0;
  std::uint64_t late = 0;
  std::uint64_t stale = 0;
  std::uint64_t bad_segment = 0;
  std::uint64_t bad_length = 0;
  std::uint64_t bad_messages = 0;    // messages that no correct peer sends here
  std::uint64_t stale_messages = 0;  // messages about transfers that are over
  std::uint64_t requests = 0;        // requests for retransmission that this end made
  std::uint64_t reports_sent = 0;
  std::uint64_t reports_received = 0;
  std::uint64_t grants_received = 0;
  std::uint64_t wants_sent = 0;
};

class DlcpEndpoint {
 public:
  // Requires options that validate. With `grants`, this end grants what its peer sends: `grants` is
  // the host's, and must outlive this object; `peer` is this endpoint's name in its grants, which
  // the driver sends to the peer. Before an endpoint is destroyed whose host lives on, its
  // transfers must have ended (connection_lost).
  explicit DlcpEndpoint(const DlcpOptions& options, GrantScheduler* grants = nullptr,
                        std::uint32_t peer = 0);

  // Both fail on a spec that is not allowed, on too many transfers and after a lost connection; on
  // failure nothing is started.
  Result<TransferHandle> start_send(const TransferSpec& spec, TagSource tags, Time now);
  Result<TransferHandle> start_recv(const TransferSpec& spec, Time now);

  // These segments of a gradual send may leave from now on. Does nothing if the transfer has ended:
  // a receiver may have enough before all is offered. Requires segments that the transfer has.
  void offer(TransferHandle handle, Bitmap::Run segments, Time now);

  // Ends the transfer with a failure, here and at the peer. Does nothing if it has ended.
  void cancel(TransferHandle handle, std::string_view cause, Time now);

  // The peer is gone: every transfer fails with this cause, and none can be started any more.
  void connection_lost(std::string_view cause, Time now, ErrorCode code = ErrorCode::kPeerLost);

  // A data packet arrived. `marked`: a switch marked it as congested. `path`: which of the sender's
  // paths it took (DataBatch::path), for drivers that have several. Here and below, queues are
  // below kPriorityCount, as the decoders of headers and messages ensure.
  Placement on_data(const wire::DataHeader& header, bool marked, Time now, std::uint32_t path = 0);
  // A message arrived in this queue that the peer sent after all its data below `end_sequence`.
  // Data of the queue, or of more urgent ones, that took the message's path and did not arrive
  // before it is likely lost. Calling this is optional.
  void on_data_end(std::uint64_t end_sequence, std::uint8_t queue, Time now,
                   std::uint32_t path = 0);
  void on_control(const wire::ControlMessage& message, Time now);
  void on_timeout(Time now);

  // Gives a batch of at most `max_segments` (above 0) that may leave now; false if there is none.
  // The segments count as sent, so the driver must send them.
  bool poll_data(Time now, std::uint32_t max_segments, DataBatch& out);
  bool poll_control(wire::ControlMessage& out);
  bool poll_event(TransferOutcome& out);

  // None: nothing happens without further input. Once the time has come, call on_timeout and
  // poll_data. A time may prove too early; on_timeout then sets the next.
  [[nodiscard]] std::optional<Time> next_timeout() const;
  // The same without the time at which data may leave, for a driver whose line is busy.
  [[nodiscard]] std::optional<Time> next_timer() const;
  // Whether data may leave now, for a driver whose line was busy.
  [[nodiscard]] bool data_ready(Time now) const;

  // The place in TransferOrder of what poll_data() would send; none if nothing may leave.
  [[nodiscard]] std::optional<SendKey> next_key() const;

  // From now on `paths` paths lead to the peer, and nothing is known about any of them. There is 1
  // until this is called. Requires 1 <= paths <= kMaxReportPaths.
  void set_paths(std::uint32_t paths, Time now) { shares_.set_count(paths, now); }
  [[nodiscard]] const PathShares& path_shares() const { return shares_; }

  // Nothing is in flight, waiting, or yet to be polled.
  [[nodiscard]] bool idle() const;
  // No transfer of this end is in flight, and no message or event is yet to be polled. The peer may
  // still wait for this end to send.
  [[nodiscard]] bool settled() const;
  // Transfers that have not ended, in both directions.
  [[nodiscard]] std::size_t transfers() const;
  // The peer says of a transfer that it has sent its data several times, and nothing of that
  // arrived. A path that drops large packets and lets signals pass looks like this.
  [[nodiscard]] bool data_vanishes() const;
  [[nodiscard]] const DlcpOptions& options() const { return options_; }
  [[nodiscard]] const DlcpCounters& counters() const { return counters_; }
  [[nodiscard]] const RateControl& rate_control() const { return rate_; }
  // The number of the next incoming transfer. A driver that reconnects passes it on as
  // DlcpOptions::first_transfer.
  [[nodiscard]] std::uint32_t next_transfer() const { return next_transfer_; }

 private:
  // The low bits of an incoming transfer's number are the index of its slot, so no two transfers in
  // flight share them. The number of slots is a power of two, and larger than that of receivers.
  struct Slot {
    std::unique_ptr<DlcpReceiver> receiver;
    bool closing = false;  // the receiver finished, and the confirm is outstanding
    std::uint32_t transfer = 0;
    Time until;     // closing: when the slot is freed at the latest
    Time finished;  // closing: when the receiver finished
    [[nodiscard]] bool in_use() const { return closing || receiver != nullptr; }
  };

  static constexpr std::uint64_t kNoWitness = ~std::uint64_t{0};

  [[nodiscard]] Result<tensor::Partition> check(const TransferSpec& spec,
                                                std::size_t in_flight) const;
  TransferHandle next_handle() { return TransferHandle{++last_handle_}; }

  void on_message(const wire::ReadyMessage& message, Time now);
  void on_message(const wire::StopMessage& message, Time now);
  void on_message(const wire::ResendMessage& message, Time now);
  void on_message(const wire::FinishMessage& message, Time now);
  void on_message(const wire::ConfirmMessage& message, Time now);
  void on_message(const wire::CancelMessage& message, Time now);
  void on_message(const wire::ReportMessage& message, Time now);
  void on_message(const wire::GrantMessage& message, Time now);
  void on_message(const wire::WantMessage& message, Time now);

  // Senders.
  // The sender whose transfer has this number at the peer, or null.
  [[nodiscard]] DlcpSender* find_sender(std::uint32_t transfer);
  void match(DlcpSender& sender, const wire::ReadyMessage& ready, Time now);
  void begin_round(DlcpSender& sender);
  void start_sending(DlcpSender& sender);
  // What leaves next is not paced here.
  [[nodiscard]] bool unpaced() const {
    return options_.paced_by_driver && !sending_.empty() && sending_.front()->scheduled();
  }
  [[nodiscard]] SendKey key_of(const DlcpSender& sender) const;
  // Segments that this transfer may send before a grant, of the `first` that the receiver names.
  [[nodiscard]] std::uint32_t first_burst(const DlcpSender& sender, std::uint32_t first) const;
  // Must be called whenever what the sender may send has changed.
  void note_allowance(DlcpSender& sender, Time now);
  void ask_for_grant(DlcpSender& sender, bool busy, Time now);
  void end_send(DlcpSender& sender, std::int32_t arrived, const std::optional<Error>& cause,
                Time now);
  void tell_receiver(const DlcpSender& sender, wire::CancelReason reason, std::string text);
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
  void fail_recv(Slot& slot, const Error& cause, Time now);
  void tell_sender(const Slot& slot, wire::CancelReason reason, std::string text);
  // Returns the segments that the peer may send before a grant.
  std::uint32_t schedule(DlcpReceiver& receiver, Time now);
  void note_progress(const DlcpReceiver& receiver, Time now);
  void unschedule(const DlcpReceiver& receiver);

  void wake_at(Time time) { wake_ = wake_ ? std::min(*wake_, time) : time; }
  void time_out_senders(Time now);
  void time_out_receivers(Time now);
  [[nodiscard]] std::string describe(Direction direction, std::uint64_t key) const;

  DlcpOptions options_;
  GrantScheduler* grants_;
  std::uint32_t peer_;
  RateControl rate_;
  Pacer pacer_;
  PathMeter path_;
  PathShares shares_;
  DlcpCounters counters_;

  std::vector<std::unique_ptr<DlcpSender>> senders_;
  std::vector<DlcpSender*> sending_;         // have data to send, in the order of key_of()
  std::vector<wire::ReadyMessage> waiting_;  // from receivers whose sender has not started
  std::uint64_t next_sequence_ = 0;          // of the next data packet to this peer

  std::vector<Slot> slots_;
  std::size_t slots_in_use_ = 0;
  std::size_t receivers_ = 0;
  std::uint32_t next_transfer_;
  std::optional<Duration> round_trip_;  // time from a finish to its confirm, smoothed

  Fifo<wire::ControlMessage> messages_;
  Fifo<TransferOutcome> events_;
  std::optional<Time> wake_;  // no later than any timer of a transfer
  // [queue]: a packet of this queue with this sequence number or a higher one may let a receiver
  // ask earlier.
  std::array<std::uint64_t, kPriorityCount> witness_;
  std::uint64_t last_handle_ = 0;
  std::optional<Error> lost_;  // why the connection was lost; none while it lives
};

}  // namespace thalweg::proto
