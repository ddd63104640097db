// AtpWorker: a worker's end of in-network aggregation (section 5.4), without I/O.
//
// Tensors are cut into blocks with consecutive sequence numbers; a gradient packet carries a block
// up, and the parameter packet with the same number brings the sum down and acknowledges it. At
// most a window of sequences lies between the oldest without a sum (UNA) and the newest sent (INF).
// A gradient is sent again, with the resend flag, when a later sum of the same server shows that it
// was lost (AtpRecoveryOptions::all_holes; without that option, when three parameter packets in a
// row belong to later sequences than UNA), or when its timeout has passed.
// Where the worker chooses exponents (proto/atp/exponents.h), a sum whose exponent did not fit
// makes it send the block again, under the number of its repetition. UNA stays until that sum is
// there.
//
// One driver, which owns the sockets and the clock, calls these verbs; `now` never goes back.
//   on_parameter, on_corrupt, on_abort,
//   on_missing, on_timeout               what happened
//   poll_transmit, poll_event            what to do about it
//   next_timeout                         when to call on_timeout
// After any call that is not a poll, the driver calls poll_event until it returns false, calls
// poll_transmit as long as the line takes more, and reads next_timeout.
//
// Invariants:
// 1. Every tensor that was started ends in one event, at its deadline at the latest, if on_timeout
//    is called in time. After a failure all tensors have ended, and none can be started.
// 2. No block is placed twice. A block is not sent again once it was placed, so the driver may
//    write sums over gradients.
// 3. A new sequence is sent only while INF − UNA is below the job's window and fewer packets than
//    congestion() allows are in flight: sent, without a sum and not known to be lost.
// 4. Neither on_parameter nor poll_transmit allocates.
//
// A copy of a worker is a snapshot: it behaves like the original.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "proto/atp/congestion.h"
#include "proto/atp/options.h"
#include "proto/atp/tensors.h"
#include "wire/atp_packet.h"

namespace thalweg::proto {

struct AtpWorkerCounters {
  std::uint64_t sent = 0;  // gradient packets, retransmissions included
  std::uint64_t retransmitted = 0;
  std::uint64_t timeouts = 0;         // losses that a timeout found
  std::uint64_t out_of_sequence = 0;  // losses that later parameter packets showed
  std::uint64_t missing = 0;          // losses that a switch reported
  std::uint64_t placed = 0;
  std::uint64_t repeated = 0;  // blocks sent again with another exponent; not retransmissions
  std::uint64_t marks = 0;     // parameter packets that echoed congestion
  // Packets dropped on arrival:
  std::uint64_t duplicate = 0;
  std::uint64_t out_of_window = 0;
  std::uint64_t mismatch = 0;
  std::uint64_t corrupt = 0;  // sums whose check word was wrong
};

class AtpWorker {
 public:
  // Requires options that validate.
  explicit AtpWorker(const AtpWorkerOptions& options);

  // Fails on a spec that is out of range, on too many tensors, and after the worker has failed.
  Result<AtpTensorHandle> start(const AtpTensorSpec& spec, Time now);

  // A parameter packet arrived. Requires a header that decode_atp_header() accepted.
  AtpPlacement on_parameter(const wire::AtpHeader& header, Time now);
  // An abort arrived: every tensor fails, with an error that names the missing workers that the
  // abort names (see AtpServer: not all of them, if several groups are missing in part). An abort
  // counts only for the oldest sequence without a sum: with several servers, a later sequence may
  // lack a worker that itself waits for another server.
  // `rank`: the rank of the missing worker, if the driver knows that only one is missing.
  void on_abort(const wire::AtpHeader& header, Time now, std::optional<int> rank = {});
  // A switch waits for this worker's contribution to a sequence and has had later ones: the packet
  // is sent again, as if for the first time, so that the switch adds it to the others.
  void on_missing(const wire::AtpHeader& header);
  // A parameter packet arrived whose check word is wrong (proto/atp/check.h): asks the server for
  // the sum again, or fails (AtpRecoveryOptions::most_bad_sums). `way`: by whom it came, for the
  // error.
  void on_corrupt(const wire::AtpHeader& header, const std::string& way, Time now);
  // Every tensor fails with this cause, and no more can be started.
  void fail(const Error& cause, Time now);
  void on_timeout(Time now);

  // The next packet that may leave now; false if there is none. The packet counts as sent, so the
  // driver must send it.
  bool poll_transmit(Time now, AtpTransmit& out);
  bool poll_event(AtpOutcome& out) { return tensors_.poll_event(out); }
  // When to call on_timeout next. None: nothing happens without further input. A time may prove
  // too early; on_timeout then sets the next.
  [[nodiscard]] std::optional<Time> next_timeout() const;

  // Whether poll_transmit would return a packet.
  [[nodiscard]] bool ready() const;
  // Whether every tensor that was started has ended.
  [[nodiscard]] bool idle() const { return tensors_.count() == 0; }
  [[nodiscard]] std::uint64_t oldest() const { return oldest_; }  // UNA
  [[nodiscard]] const AtpWorkerOptions& options() const { return options_; }
  [[nodiscard]] const AtpWorkerCounters& counters() const { return counters_; }
  [[nodiscard]] const AtpCongestion& congestion() const { return congestion_; }

  // Appends the state that decides how later packets are handled: equal texts mean equal
  // behaviour. Left out are times, how long timeouts have grown, what is measured, the window of
  // congestion(), and which sums of tensors yet to be started show that a retransmission was lost.
  void encode_state(std::string& out) const;

 private:
  // A sequence in [oldest_, next_), stored at its number modulo the window.
  struct Flight {
    Time sent;
    Time first_sent;
    // For a sequence that was sent again: a sum of this number or a later one, from the same
    // server, shows that the retransmission was lost. The other workers have sent theirs again by
    // then, too.
    std::uint64_t overtaken_by = 0;
    std::uint8_t path = 0;      // atp_path_of() of its sequence
    std::uint8_t tries = 0;     // retransmissions, counted until the timeout grows no more
    std::uint8_t bad_sums = 0;  // that arrived, with wrong check words
    bool placed = false;
    bool lost = false;  // to be sent again
    bool late = false;  // lost by timeout
    // Sums of later sequences have arrived: it is lost unless its own comes soon.
    bool overtaken = false;
    // Lost, to be sent again without the resend flag: a switch adds it to a sum that waits for it,
    // and does not flush one that waits for other workers.
    bool gentle = false;
    // The sum of its first time did not fit: the flight is that of its repetition, which is still
    // to be sent for the first time if it is fresh.
    bool repeated = false;
    bool fresh = false;
    std::int8_t exponent = 0;
    std::int8_t ahead = 0;  // placed: the exponent that the block one window later needs
  };

  [[nodiscard]] Flight& flight(std::uint64_t sequence) {
    return flights_[sequence & (flights_.size() - 1)];
  }
  [[nodiscard]] const Flight& flight(std::uint64_t sequence) const {
    return flights_[sequence & (flights_.size() - 1)];
  }
  [[nodiscard]] Duration timeout(const Flight& flight) const;
  // Whether a new sequence may be sent now. Retransmissions go first: ask lost_to_send() before.
  [[nodiscard]] bool may_send_new() const;
  // The lost sequence that may be sent again now.
  [[nodiscard]] std::optional<std::uint64_t> lost_to_send() const;
  // The flight's packet is in flight no longer: it was placed or lost.
  void take_off(const Flight& flight);
  void mark_lost(std::uint64_t sequence, std::uint64_t& counter);
  // The exponent of the first sequence that has not been sent; none: it is not known yet.
  [[nodiscard]] std::optional<std::int8_t> next_exponent() const;
  // Whether the packet is the sum of what this worker sends now for the block.
  [[nodiscard]] static bool matches(const wire::AtpHeader& header, const AtpBlock& block,
                                    const Flight& flight);
  // A sum arrived, whether or not it can be used: takes its flight off.
  void acknowledge(std::uint64_t sequence, bool congested, Time now);
  // The block is to be sent again with this exponent.
  void repeat(std::uint64_t sequence, std::int8_t exponent);
  // Takes a lost sequence that is sent again now. Returns whether it has the resend flag.
  bool take_again(std::uint64_t sequence);
  void fill(std::uint64_t sequence, bool resend, AtpTransmit& out) const;
  // A sum came by this path after this time.
  void measure(std::uint8_t path, Duration sample);
  // The time from a gradient to its parameter on the flight's path; none while it is not known.
  [[nodiscard]] std::optional<Duration> typical(const Flight& flight) const {
    return typical_[flight.path];
  }
  // The time that the sum of this flight took, if it is known to which sending it belongs.
  [[nodiscard]] std::optional<Duration> time_taken(const Flight& flight, Time now) const;
  // How many sequences later a sum must be to show that an earlier one was lost.
  [[nodiscard]] std::uint64_t patience() const;
  // The first of this server's sequences that is not below UNA.
  [[nodiscard]] std::uint64_t oldest_of(std::uint64_t server) const;
  // The parameter of `sequence` arrived: these mark the losses that it shows, of first
  // transmissions and of retransmissions.
  void find_holes(std::uint64_t sequence, Time now);
  void find_lost_again(std::uint64_t sequence, Time now);
  void note_order(std::uint64_t sequence, Time now);
  // A later sum has overtaken this sequence.
  void doubt(std::uint64_t sequence, Time now);
  // It is likely that other workers have not begun, and not that packets were lost.
  [[nodiscard]] bool waits_for_start() const {
    return starting_ && options_.recovery.patient_start;
  }
  // Everything has been sent, so no later packets can show losses.
  [[nodiscard]] bool at_end() const;
  void wake_at(Time time);
  [[nodiscard]] std::string name() const;

  AtpWorkerOptions options_;
  AtpCongestion congestion_;
  AtpTensors tensors_;
  AtpExponents exponents_;
  AtpWorkerCounters counters_;
  std::vector<Flight> flights_;
  std::uint64_t oldest_ = 0;      // UNA
  std::uint64_t next_ = 0;        // the first sequence that has not been sent
  std::uint32_t lost_ = 0;        // flights to be sent again
  std::uint32_t late_ = 0;        // flights to be sent again that a timeout found lost
  std::uint64_t first_lost_ = 0;  // no sequence before this one is lost
  std::uint32_t in_flight_ = 0;   // flights that are sent, not placed and not lost
  std::uint32_t again_ = 0;       // flights in flight that are retransmissions
  std::uint32_t later_ = 0;       // without all_holes: parameters of later sequences in a row
  std::vector<std::uint64_t> looked_at_;  // for each server: losses below this have been found
  std::uint64_t next_look_ = 0;  // no retransmission in flight has an `overtaken_by` below this
  // How many flights that a timeout found lost may be sent again now: one at first, and two more
  // for each retransmission that was answered. As a rule these packets were not lost but wait for
  // a worker that lost something; without this limit all other workers would send their whole
  // windows again.
  std::uint32_t late_credit_ = 1;
  bool paused_ = false;  // everything had been sent when the last tensor was started
  Time last_placed_;     // when the last parameter was placed
  // Something was sent after a pause, when nothing was in flight, and no parameter has arrived
  // since: it is unknown how much later the other workers begin.
  bool starting_ = false;
  std::uint64_t measure_from_ = 0;  // earlier sequences waited for workers that began later
  std::vector<std::optional<Duration>> typical_;  // [path]: time from a gradient to its parameter
  std::optional<Time> wake_;     // no later than any flight's timeout or tensor's deadline
  std::optional<Error> failed_;  // the cause of the failure; none while there is none
};

}  // namespace thalweg::proto
