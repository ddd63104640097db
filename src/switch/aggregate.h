// The aggregation stage of ATP (papers/atp.txt, sections 5.2 and 5.3): which gradient packets are
// summed in which slot (the paper's aggregator), and when a sum leaves. docs/protocol-atp.md has
// the state table and what the paper leaves open.
//
// A slot serves one sequence of one job at one place: the first level of one group, or the second
// level. Slots are found by a hash that all packets of a sequence share, claimed by the first that
// arrives, and freed by the parameter packet, by a retransmission, or when unused for long. A
// packet that finds its slot taken passes on, and the server adds it.
//
// Invariants:
// 1. A slot's elements are the sum of exactly the contributions in its member set, each once.
// 2. What a slot has taken in leaves only under a header that names exactly these contributions;
//    or not at all, which to the ends is loss.
// 3. A slot without traffic is free `lifetime` after its last packet, if sweep() is called.
// 4. Neither on_gradient() nor on_parameter() allocates.
//
// Pure: time is an argument and never goes back. A copy is a snapshot (the exploration of
// tests/unit/atp holds thousands). Fields of headers are checked by decode_atp_header(); that a
// packet comes from a member of its job (wire/atp_seal.h) by the driver.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "switch/aggregate_action.h"
#include "wire/atp_packet.h"

namespace thalweg {

struct AggregateOptions {
  std::uint32_t slots = 4096;        // above 0
  std::uint32_t slot_elements = 64;  // the most elements of a packet that is aggregated
  // A slot that no packet has touched for so long is free. Longer than workers take to retransmit:
  // a slot freed too early costs its contributions a retransmission each, never the sum.
  Duration lifetime = Duration::milliseconds(1'000);
  // Where sequence s of a job begins: at hash(job, s), as in the paper; or, the default, at
  // hash(job) + s, so that sequences of one job take each other's slots only where it has more of
  // them in flight than there are slots (for each of its places here).
  bool hash_sequences = false;
  // A retransmission that reaches the second level goes on alone and the slot's sum is lost, as in
  // the paper (step 7); by default it takes the sum along.
  bool pass_second_level_resends = false;
  [[nodiscard]] Status validate() const;
};

// A job as this switch sees it. Groups and fan-ins come with the packets.
struct AggregateJob {
  std::uint32_t id = 0;
  std::uint32_t groups = 0;      // whose first level is this switch
  bool second_level = false;     // the server's switch
  std::uint32_t window = 1024;   // the most sequences that a worker has in flight; above 0
  std::uint32_t slot_limit = 0;  // the most slots at a time; 0: no limit
};

// Counts of one job, or of all packets of no job.
struct AggregateCounters {
  std::array<std::uint64_t, kAggregateCauseCount> packets = {};
  std::uint64_t partial_sums = 0;  // flushed with contributions of some, not all
  std::uint64_t reclaimed = 0;     // slots of sequences that every worker is past
  std::uint64_t expired = 0;       // slots freed by their lifetime
  std::uint64_t discarded = 0;   // slots freed by a retransmission that did not take the sum along
  std::uint32_t slots = 0;       // in use now
  std::uint32_t most_slots = 0;  // at any time

  [[nodiscard]] std::uint64_t of(AggregateAction::Cause cause) const {
    return packets[static_cast<std::size_t>(cause)];
  }
};

class AggregateTable {
 public:
  static constexpr std::size_t kMostJobs = 4096;

  // Requires options that validate.
  explicit AggregateTable(const AggregateOptions& options);

  // Fails on an id that is there already, a window of 0 and too many jobs.
  Status add_job(const AggregateJob& job);
  // Frees its slots. False: there is none.
  bool remove_job(std::uint32_t id);

  // A gradient packet whose header decoded well.
  AggregateAction on_gradient(AtpHeader& header, Time now);
  // A parameter or abort packet; what it frees is free before it goes on.
  AggregateAction on_parameter(const AtpHeader& header);
  // Requires a slot in use.
  void mark_saturated(std::uint32_t slot);

  // Looks at `count` slots, going round, and frees those whose lifetime has passed.
  void sweep(Time now, std::uint32_t count);
  // All slots are lost; jobs stay. What a switch is after it was restarted and set up again.
  void restart();

  // Where the sequences of a job begin among the slots at its first place here, and how far it is
  // from place to place: the groups in their order, then the second level. If sequences are not
  // hashed.
  static std::uint64_t first_slot(const AggregateJob& job, std::size_t slots);
  static std::uint64_t slots_between(const AggregateJob& job, std::size_t slots);

  [[nodiscard]] const AggregateOptions& options() const { return options_; }
  [[nodiscard]] std::uint32_t slots_in_use() const { return in_use_; }
  [[nodiscard]] bool in_use(std::uint32_t slot) const { return slots_[slot].members != 0; }
  // Of a job, or null.
  [[nodiscard]] const AggregateCounters* counters(std::uint32_t job) const;
  // Of packets of no known job.
  [[nodiscard]] const AggregateCounters& unknown() const { return unknown_; }

  // Appends what decides about later packets: equal texts, equal behaviour. Excepted are times and
  // what only travels along: marks and the exponent needed later.
  void encode_state(std::string& out) const;

 private:
  static constexpr std::uint8_t kSecondLevelPlace = 0xff;

  struct Slot {
    std::uint64_t sequence = 0;
    Time touched;
    std::uint32_t job = 0;
    std::uint32_t members = 0;  // 0: free. Workers of the group, or groups at the second level
    std::uint16_t elements = 0;
    std::uint8_t place = 0;  // a group's first level, or kSecondLevelPlace
    std::uint8_t fan_in = 0;
    std::int8_t exponent = 0;
    std::int8_t next_exponent = 0;
    bool congested = false;
    bool saturated = false;
  };
  struct Job {
    AggregateJob about;
    // Where the slots of its first place begin, and how far apart those of two places do.
    std::uint64_t start = 0;
    std::uint64_t stride = 0;
    AggregateCounters counters;
    [[nodiscard]] std::uint32_t id() const { return about.id; }
  };

  [[nodiscard]] Job* find(std::uint32_t id);
  [[nodiscard]] std::uint32_t index_of(const Job& job, std::uint64_t sequence,
                                       std::uint8_t place) const;
  [[nodiscard]] std::uint32_t number_of(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  [[nodiscard]] static bool serves(const Slot& slot, const AtpHeader& header, std::uint8_t place);
  [[nodiscard]] static bool differs(const Slot& slot, const AtpHeader& header);
  AggregateAction decide(Job& job, AtpHeader& header, Time now);
  AggregateAction aggregate(Slot& slot, AtpHeader& header);
  AggregateAction claim(Job& job, Slot& slot, AtpHeader& header, Time now);
  AggregateAction flush(Job& job, Slot& slot, AtpHeader& header);
  bool reclaim(Slot& slot, const AtpHeader& header, std::uint32_t window, Time now);
  static AggregateAction pass_on(AtpHeader& header, AggregateAction::Cause cause);
  static void take_marks(Slot& slot, const AtpHeader& header);
  static void emit_sum(const Slot& slot, AtpHeader& header, AggregateAction& action,
                       AggregateAction::Cause cause);
  void free(Slot& slot, Job& owner);

  AggregateOptions options_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;     // by id
  std::size_t last_job_ = 0;  // where find() looks first
  std::uint32_t in_use_ = 0;
  std::uint32_t cursor_ = 0;
  AggregateCounters unknown_;
};

}  // namespace thalweg
