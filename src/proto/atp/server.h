// AtpServer: a parameter server's end of in-network aggregation (section 5.4), without I/O. For
// each sequence it knows which workers' contributions it has. It tells its driver what to add; the
// driver owns the elements, one array of int32 per slot. When a sequence is complete, its sum goes
// to all workers and stays in its slot as long as a worker might ask for it again.
//
// Gradients arrive as whole sums, partial sums and single contributions, in any order, duplicated
// and overlapping. Let H be the contributions that the slot holds and P those that a packet brings:
//   P within H           dropped: nothing is new
//   P and H disjoint     P's elements are added
//   H within P           P's elements replace the slot's
//   otherwise            dropped: the sum of both sets cannot be computed. The workers send again,
//                        and a single contribution never overlaps like this, so the sequence
//                        completes
//
// The driver drops gradients whose check word is wrong (proto/atp/check.h). That of a sum in which
// an element saturated proves nothing: an element that changed on its way may be the cause. So a
// sum of several contributions that saturated on its way is dropped, too. The workers send again,
// and contributions that arrive one by one can be checked.
//
// Memory: a worker sends s only when it has the sums of all sequences up to s − window, and a
// sequence completes only when all workers have sent it. So all sequences that any worker may still
// send lie within two windows, and a ring of that many slots never loses a sum that is needed. A
// block is repeated under another number (wire/atp_packet.h) only when all workers have sent it for
// the first time, so its repetition needs no larger ring; and what its first time gave stays for
// workers that have not seen it.
//
// The verbs are those of worker.h: on_gradient, on_timeout; poll_transmit, poll_event;
// next_timeout. After any call that is not a poll, call the polls until they return false.
//
// Invariants:
// 1. The elements of a slot are the sum of exactly the contributions it holds, each once; its check
//    word is the sum of theirs.
// 2. A sum is sent only when it includes every worker's contribution.
// 3. on_gradient and poll_transmit do not allocate.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "proto/atp/options.h"
#include "proto/fifo.h"
#include "wire/atp_packet.h"

namespace thalweg::proto {

// What the driver does with the elements of a packet that arrived, before its next call to the
// server.
struct AtpServerAction {
  using Payload = wire::AtpPayload;
  enum class Cause : std::uint8_t {
    kStored,       // the first packet of its sequence
    kAdded,        // its contributions were all new
    kReplaced,     // it included all that the slot held, and more
    kDuplicate,    // it brought nothing new
    kOverlap,      // its sum mixes new contributions with some that the slot holds
    kAnswered,     // a retransmission of a complete sequence: the sum is sent again
    kStale,        // every worker has the sum of its sequence
    kOutOfWindow,  // no worker can have begun its sequence
    kMismatch,     // it has another job, server or shape, or is not a gradient
    kOverdue,      // it brought nothing new to an overdue sequence: the abort is sent again
    kUnproven,     // it is a sum of several in which an element saturated: see below
  };
  Payload payload = Payload::kNothing;
  Cause cause = Cause::kMismatch;
  bool completed = false;  // the slot holds the complete sum, which poll_transmit sends next
  std::uint32_t slot = 0;
};
inline constexpr int kAtpServerCauseCount = 11;
const char* name_of(AtpServerAction::Cause cause);

// A packet to be sent now: a parameter packet with the slot's elements, to the workers that its
// header names, or an abort without elements, to all workers.
struct AtpServerTransmit {
  wire::AtpHeader header;
  std::uint32_t slot = 0;
};

// No sequence has completed within the deadline. An abort tells the workers; if the missing
// contributions arrive after all, the server goes on.
struct AtpServerFailure {
  std::string error;  // names the job, the sequence and the missing workers, as the abort does
};

class AtpServer {
 public:
  // Requires options that validate.
  explicit AtpServer(const AtpServerOptions& options);

  // A packet arrived. Requires a header that decode_atp_header() accepted.
  AtpServerAction on_gradient(const wire::AtpHeader& header, Time now);
  // Adding the last action's elements saturated. Requires that action's slot; call it before
  // poll_transmit.
  void mark_saturated(std::uint32_t slot);
  void on_timeout(Time now);

  bool poll_transmit(AtpServerTransmit& out);
  bool poll_event(AtpServerFailure& out);
  [[nodiscard]] std::optional<Time> next_timeout() const;

  // How many slots of elements the driver must provide.
  [[nodiscard]] std::uint32_t slots() const { return static_cast<std::uint32_t>(entries_.size()); }
  // Sequences that have begun and are not complete.
  [[nodiscard]] std::uint32_t open() const { return open_; }
  [[nodiscard]] const AtpServerOptions& options() const { return options_; }
  [[nodiscard]] std::uint64_t count(AtpServerAction::Cause cause) const {
    return counts_[static_cast<std::size_t>(cause)];
  }

  // Appends the state that decides how later packets are handled: equal texts mean equal
  // behaviour. Left out are times and values that are only passed on: marks and the exponents
  // that workers need.
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
    std::int8_t needed_exponent = 0;
    std::uint64_t check = 0;
  };
  // A packet that waits for poll_transmit.
  struct Waiting {
    std::uint64_t sequence = 0;
    std::uint32_t slot = 0;
    // Its receivers, with the meaning of AtpHeader's fields.
    std::uint32_t groups = 0;
    std::uint32_t workers = 0;
    std::uint8_t group = 0;
    bool abort = false;
  };

  // Repetitions have a ring of their own, after that of the first times.
  [[nodiscard]] std::uint32_t slot_of(std::uint64_t sequence) const {
    const auto place =
        static_cast<std::uint32_t>(wire::atp_first_time(sequence) / options_.servers) & (ring_ - 1);
    return wire::atp_is_repetition(sequence) ? ring_ + place : place;
  }
  [[nodiscard]] bool fits(const wire::AtpHeader& header) const;
  AtpServerAction judge(const wire::AtpHeader& header, Time now);
  AtpServerAction merge(std::uint32_t slot, const wire::AtpHeader& header, Time now);
  void begin(std::uint32_t slot, const wire::AtpHeader& header);
  void send(const Waiting& waiting);
  void finish(std::uint32_t slot, Time now);
  void send_abort(std::uint32_t slot);
  [[nodiscard]] wire::AtpHeader parameter_of(const Waiting& waiting) const;
  // The abort that names the missing workers: all groups that contributed nothing, and the missing
  // workers of the first group that contributed in part.
  [[nodiscard]] wire::AtpHeader abort_of(std::uint32_t slot) const;
  [[nodiscard]] int contributions(const wire::AtpHeader& header) const;
  // The workers of group g whose gradients come by switches.
  [[nodiscard]] std::uint32_t by_switches(std::size_t g) const {
    const bool own = options_.seat && options_.seat->group == g;
    return wire::atp_all(options_.groups[g]) & ~(own ? wire::atp_bit(options_.seat->index) : 0U);
  }
  [[nodiscard]] std::uint8_t fan_in_of(std::size_t g) const {
    return static_cast<std::uint8_t>(std::popcount(by_switches(g)));
  }
  // The workers of group g whose contributions the packet holds.
  [[nodiscard]] std::uint32_t brought(const wire::AtpHeader& header, std::size_t g) const;
  [[nodiscard]] std::uint32_t& held(std::uint32_t slot, std::size_t g) {
    return held_[slot * options_.groups.size() + g];
  }
  [[nodiscard]] std::uint32_t held(std::uint32_t slot, std::size_t g) const {
    return held_[slot * options_.groups.size() + g];
  }

  AtpServerOptions options_;
  std::uint32_t ring_;  // slots of a ring, a power of two
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> held_;  // for each slot and group: the workers that contributed
  Fifo<Waiting> waiting_;
  std::array<std::uint64_t, kAtpServerCauseCount> counts_ = {};
  std::uint32_t open_ = 0;
  // While sequences are open: since when none has completed. None after a failure was reported,
  // until a new contribution arrives.
  std::optional<Time> waiting_since_;
  Fifo<AtpServerFailure> events_;
};

}  // namespace thalweg::proto
