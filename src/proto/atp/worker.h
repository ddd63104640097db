// AtpWorker: a worker's end of in-network aggregation (section 5.4), without I/O.
//
// Tensors are cut into blocks with consecutive sequence numbers; a gradient packet carries a block
// up, and the parameter packet with the same number brings the sum down and acknowledges it. At
// most a window of sequences lies between the oldest without a sum (UNA) and the newest sent (INF).
// A gradient is sent again, with the resend flag, when a later sum of the same server shows that it
// was lost (AtpRecoveryOptions::all_holes; without it when three parameter packets in a row are of
// later sequences than UNA), or when its timeout has passed.
//
// Verbs, called by one driver that owns sockets and clock; `now` never goes back.
//   on_parameter, on_abort, on_timeout   what happened
//   poll_transmit, poll_event            what to do about it
//   next_timeout                         when to call on_timeout
// After any call that is not a poll: poll_event until false, poll_transmit as long as the line
// takes more, and look at next_timeout.
//
// Invariants:
// 1. Every tensor that was started ends in one event, at its deadline at the latest, if on_timeout
//    is called in time; after a failure all do, and nothing can be started.
// 2. No block is placed twice. A block is not sent again once it was placed, so the sums may be put
//    where the gradients were.
// 3. Something new is sent only while INF − UNA is below the job's window, and fewer packets than
//    congestion() allows are on their way: sent, without a sum and not known to be lost.
// 4. Neither on_parameter nor poll_transmit allocates.
//
// A copy is a snapshot: two equal ones behave alike.
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

namespace thalweg {

struct AtpWorkerCounters {
  std::uint64_t sent = 0;  // retransmissions included
  std::uint64_t retransmitted = 0;
  std::uint64_t timeouts = 0;         // sequences sent again because of them
  std::uint64_t out_of_sequence = 0;  // sequences sent again because of later parameters
  std::uint64_t placed = 0;
  std::uint64_t marks = 0;  // parameter packets that echoed congestion
  // Dropped on arrival.
  std::uint64_t duplicate = 0;
  std::uint64_t out_of_window = 0;
  std::uint64_t mismatch = 0;
};

class AtpWorker {
 public:
  // Requires options that validate.
  explicit AtpWorker(const AtpWorkerOptions& options);

  // Fails on a spec that is not allowed, too many tensors, and after a failure.
  Result<AtpTensorHandle> start(const AtpTensorSpec& spec, Time now);

  // A parameter packet whose header decoded well.
  AtpPlacement on_parameter(const AtpHeader& header, Time now);
  // An abort: everything fails, with an error that names those missing that the abort names (see
  // AtpServer: not all, if several groups are missing in part). Only the oldest sequence
  // without a sum counts: with several servers a later one may lack a worker that waits itself.
  void on_abort(const AtpHeader& header, Time now);
  // Everything fails with this cause.
  void fail(const std::string& cause, Time now);
  void on_timeout(Time now);

  // The next packet that may leave now. The driver must send it: it counts as sent.
  bool poll_transmit(Time now, AtpTransmit& out);
  bool poll_event(AtpOutcome& out) { return tensors_.poll_event(out); }
  // None: nothing will happen by itself. Timers may turn out to be early.
  [[nodiscard]] std::optional<Time> next_timeout() const;

  // poll_transmit would give a packet.
  [[nodiscard]] bool ready() const;
  // Nothing is in flight or waiting.
  [[nodiscard]] bool idle() const { return tensors_.count() == 0; }
  [[nodiscard]] std::uint64_t oldest() const { return oldest_; }  // UNA
  [[nodiscard]] const AtpWorkerOptions& options() const { return options_; }
  [[nodiscard]] const AtpWorkerCounters& counters() const { return counters_; }
  [[nodiscard]] const AtpCongestion& congestion() const { return congestion_; }

  // Appends what decides about later packets: equal texts, equal behaviour. Excepted are times, how
  // long timeouts have grown, what is measured, the window of congestion(), and, should more be
  // started, which sums of that show that something was lost again.
  void encode_state(std::string& out) const;

 private:
  // A sequence in [oldest_, next_), at its number modulo the window.
  struct Flight {
    Time sent;
    // Of what was sent again: a sum of this sequence or a later one, from the same server, shows
    // that it was lost again. The others have sent theirs again by then, too.
    std::uint64_t overtaken_by = 0;
    std::uint8_t tries = 0;  // retransmissions, up to where the timeout grows no more
    bool placed = false;
    bool lost = false;  // to be sent again
    bool late = false;  // lost by timeout
  };

  [[nodiscard]] Flight& flight(std::uint64_t sequence) {
    return flights_[sequence & (flights_.size() - 1)];
  }
  [[nodiscard]] const Flight& flight(std::uint64_t sequence) const {
    return flights_[sequence & (flights_.size() - 1)];
  }
  [[nodiscard]] Duration timeout(const Flight& flight) const;
  // If nothing lost may be sent again: that goes first.
  [[nodiscard]] bool may_send_new() const;
  // The sequence that may be sent again now.
  [[nodiscard]] std::optional<std::uint64_t> lost_to_send() const;
  void take_off(const Flight& flight);
  void mark_lost(std::uint64_t sequence, std::uint64_t& counter);
  void measure(Duration sample);
  [[nodiscard]] std::uint64_t patience() const;
  [[nodiscard]] std::uint64_t oldest_of(std::uint64_t server) const;
  void find_holes(std::uint64_t sequence);
  void find_lost_again(std::uint64_t sequence);
  void note_order(std::uint64_t sequence);
  void wake_at(Time time);
  [[nodiscard]] std::string name() const;

  AtpWorkerOptions options_;
  AtpCongestion congestion_;
  AtpTensors tensors_;
  AtpWorkerCounters counters_;
  std::vector<Flight> flights_;
  std::uint64_t oldest_ = 0;
  std::uint64_t next_ = 0;
  std::uint32_t lost_ = 0;        // flights to be sent again
  std::uint32_t late_ = 0;        // those of them lost by timeout
  std::uint64_t first_lost_ = 0;  // none is before this one
  std::uint32_t in_flight_ = 0;   // sent, not placed, not lost
  std::uint32_t again_ = 0;       // those of them that were sent again
  std::uint32_t later_ = 0;       // without all_holes: parameters of later sequences in a row
  std::vector<std::uint64_t> looked_at_;  // of each server: holes below this have been found
  std::uint64_t next_look_ = 0;           // no `overtaken_by` of what was sent again is below
  // How many of those lost by timeout may be sent again now. One at first, and two more for each
  // that was answered: as a rule they were not lost but wait for a worker that lost something, and
  // all others would send their whole windows again.
  std::uint32_t late_credit_ = 1;
  // Sent after nothing was in flight, and no parameter has come since: nobody knows how long the
  // other workers take to begin.
  bool starting_ = false;
  std::optional<Duration> typical_;  // from a gradient to its parameter
  std::optional<Time> wake_;         // no later than any timeout of a flight
  std::string failed_;               // why; empty while all is well
};

}  // namespace thalweg
