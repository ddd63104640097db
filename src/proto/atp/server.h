// AtpServer: a parameter server's end of in-network aggregation (section 5.4), without I/O. It
// keeps whose contributions of each sequence it has, and tells its driver, who owns the elements
// (an array of int32 a slot), what to add. When a sequence is complete its sum goes to all workers,
// and stays as long as one might ask again.
//
// Gradients arrive as whole sums, partial sums and single contributions, in any order, doubled and
// overlapping. Let H be what the slot holds and P what a packet brings:
//   P within H           nothing new: dropped
//   P and H disjoint     added
//   H within P           P's elements replace the slot's
//   otherwise            dropped: no sum of both can be had. Its workers send again, and what
//                        they send alone is never of this kind, so the sequence completes
//
// Memory: a worker sends s only when it has the sums of all sequences up to s − window, and a
// sequence completes only when all workers have sent it. So all sequences that any worker may still
// send lie within two windows, and a ring of that many slots never loses a sum that is needed.
//
// Verbs as in worker.h: on_gradient, on_timeout; poll_transmit, poll_event; next_timeout. After any
// call that is not a poll, poll until false.
//
// Invariants:
// 1. The elements of a slot are the sum of exactly the contributions it holds, each once.
// 2. A sum is sent only when it holds every worker's contribution.
// 3. on_gradient and poll_transmit do not allocate.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "proto/atp/options.h"
#include "proto/fifo.h"
#include "wire/atp_packet.h"

namespace thalweg {

// What to do with the elements of a packet that arrived: before the next call to the server.
struct AtpServerAction {
  using Payload = AtpPayload;
  enum class Cause : std::uint8_t {
    kStored,  // the first of its sequence
    kAdded,
    kReplaced,     // held more than the slot
    kDuplicate,    // brought nothing new
    kOverlap,      // brought something new that cannot be told from the rest
    kAnswered,     // a retransmission of a complete sequence: the sum is sent again
    kStale,        // of a sequence that every worker is past
    kOutOfWindow,  // of a sequence that cannot have begun
    kMismatch,     // of another job, server or shape, or not a gradient
    kOverdue,      // brought nothing new to a sequence that is overdue: the abort is sent again
  };
  Payload payload = Payload::kNothing;
  Cause cause = Cause::kMismatch;
  bool completed = false;  // the slot holds the sum of all: what poll_transmit sends next
  std::uint32_t slot = 0;
};
inline constexpr int kAtpServerCauseCount = 10;
const char* name_of(AtpServerAction::Cause cause);

// A parameter packet to be sent now with the slot's elements, to the workers that its header names;
// or an abort, to all, without elements.
struct AtpServerTransmit {
  AtpHeader header;
  std::uint32_t slot = 0;
};

// No sequence has completed for the deadline. The workers have been told; should the missing
// contributions come after all, the server goes on.
struct AtpServerFailure {
  std::string error;  // names job, sequence and the workers that are missing, as the abort does
};

class AtpServer {
 public:
  // Requires options that validate.
  explicit AtpServer(const AtpServerOptions& options);

  // A packet whose header decoded well.
  AtpServerAction on_gradient(const AtpHeader& header, Time now);
  // Requires the slot of the last action. Before poll_transmit.
  void mark_saturated(std::uint32_t slot);
  void on_timeout(Time now);

  bool poll_transmit(AtpServerTransmit& out);
  bool poll_event(AtpServerFailure& out);
  [[nodiscard]] std::optional<Time> next_timeout() const;

  // How many slots the driver must have.
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(entries_.size()); }
  // Sequences that have begun and are not complete.
  [[nodiscard]] std::uint32_t open() const { return open_; }
  [[nodiscard]] const AtpServerOptions& options() const { return options_; }
  [[nodiscard]] std::uint64_t count(AtpServerAction::Cause cause) const {
    return counts_[static_cast<std::size_t>(cause)];
  }

  // Appends what decides about later packets: equal texts, equal behaviour. Excepted are times and
  // what only travels along: marks and the exponent needed later.
  void encode_state(std::string& out) const;

 private:
  struct Entry {
    std::uint64_t sequence = 0;
    bool used = false;
    bool complete = false;
    bool overdue = false;
    bool congested = false;
    bool saturated = false;
    std::uint16_t elements = 0;
    std::int8_t exponent = 0;
    std::int8_t next_exponent = 0;
  };
  struct Waiting {
    std::uint64_t sequence = 0;
    std::uint32_t slot = 0;
    // Whom it is for, in the words of AtpHeader.
    std::uint32_t groups = 0;
    std::uint32_t workers = 0;
    std::uint8_t group = 0;
    bool abort = false;
  };

  [[nodiscard]] std::uint32_t slot_of(std::uint64_t sequence) const {
    return static_cast<std::uint32_t>(sequence / options_.servers) &
           static_cast<std::uint32_t>(entries_.size() - 1);
  }
  [[nodiscard]] bool fits(const AtpHeader& header) const;
  AtpServerAction judge(const AtpHeader& header, Time now);
  AtpServerAction merge(std::uint32_t slot, const AtpHeader& header, Time now);
  void begin(std::uint32_t slot, const AtpHeader& header);
  void send(const Waiting& waiting);
  void finish(std::uint32_t slot, Time now);
  void send_abort(std::uint32_t slot);
  [[nodiscard]] AtpHeader parameter_of(const Waiting& waiting) const;
  // Who is missing, as an abort says it: all groups of which nobody came, and of the groups of
  // which some came the first.
  [[nodiscard]] AtpHeader abort_of(std::uint32_t slot) const;
  // Of group g, those that the packet holds.
  [[nodiscard]] std::uint32_t brought(const AtpHeader& header, std::size_t g) const;
  [[nodiscard]] std::uint32_t& held(std::uint32_t slot, std::size_t g) {
    return held_[slot * options_.groups.size() + g];
  }
  [[nodiscard]] std::uint32_t held(std::uint32_t slot, std::size_t g) const {
    return held_[slot * options_.groups.size() + g];
  }

  AtpServerOptions options_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> held_;  // of each slot, of each group: whose contributions
  Fifo<Waiting> waiting_;
  std::array<std::uint64_t, kAtpServerCauseCount> counts_ = {};
  std::uint32_t open_ = 0;
  // While sequences are open: since when none was completed. None after the failure was told, until
  // something comes again.
  std::optional<Time> waiting_since_;
  Fifo<AtpServerFailure> events_;
};

}  // namespace thalweg
