// AggregateTable: the aggregation stage of ATP (the ATP paper, sections 5.2 and 5.3). It decides
// which gradient packets are summed in which slot (the paper's aggregator), and when a sum leaves.
// docs/protocol-atp.md has the state table and what the paper leaves open.
//
// A slot serves one sequence of one job at one place: the first level of one group, or the second
// level. A hash that all packets of a sequence share finds the slot. The first packet that arrives
// claims it; the parameter packet, a retransmission, or a long time without packets frees it. A
// packet whose slot serves another sequence passes on, and the server adds it.
//
// Invariants:
// 1. A slot's elements are the sum of exactly the contributions in its member set, each once; its
//    check word is the sum of theirs.
// 2. A slot's sum leaves only under a header that names exactly its contributions; or it does not
//    leave at all, which workers and servers see as a loss.
// 3. A slot is free `lifetime` after its last packet, if sweep() is called.
// 4. Neither on_gradient() nor on_parameter() allocates.
//
// The class is pure: time is an argument and never goes back. A copy is a snapshot (the exploration
// of tests/unit/atp holds thousands). decode_atp_header() has checked the fields of headers, and
// the driver has checked that a packet comes from a member of its job (wire/atp_seal.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "switch/aggregation/aggregate_action.h"
#include "wire/atp_packet.h"

namespace thalweg::switches {

struct AggregateOptions {
  std::uint32_t slots = 4096;        // above 0
  std::uint32_t slot_elements = 64;  // the most elements of a packet that is aggregated
  // A slot is free when no packet has touched it for this long. Set it longer than workers take to
  // retransmit: a slot freed too early costs each of its contributions a retransmission, but never
  // makes the sum wrong.
  Duration lifetime = Duration::milliseconds(1'000);
  // On, as in the paper: sequence s of a job uses the slot hash(job, s). Off: it uses the slot
  // hash(job) + s, so that two sequences of one job collide only if the job has more of them in
  // flight than there are slots for each of its places at this switch.
  bool hash_sequences = false;
  // On, as in the paper (step 7): a retransmission that reaches the second level goes on alone, and
  // the slot's sum is lost. Off: it takes the sum along.
  bool pass_second_level_resends = false;
  // missing_before() reports a contribution when one of the same worker arrives that is this many
  // sequences later: how far packets of one worker may overtake each other. 0: it reports none.
  std::uint32_t reordering = 3;
  [[nodiscard]] Status validate() const;
};

// A job as this switch sees it. Packets carry the fan-ins.
struct AggregateJob {
  std::uint32_t id = 0;
  std::uint32_t groups = 0;      // set of the groups for which this switch is the first level
  bool second_level = false;     // this is the server's switch
  std::uint32_t window = 1024;   // the most sequences that a worker has in flight; above 0
  std::uint32_t slot_limit = 0;  // the most slots the job may hold at a time; 0: no limit
};

// Counters of one job, or of all packets whose job is unknown.
struct AggregateCounters {
  std::array<std::uint64_t, kAggregateCauseCount> packets = {};
  std::uint64_t partial_sums = 0;  // flushed sums that lack contributions
  std::uint64_t reclaimed = 0;     // slots taken from sequences whose sums every worker has
  std::uint64_t expired = 0;       // slots freed because their lifetime passed
  std::uint64_t reported = 0;      // contributions reported missing
  std::uint64_t discarded = 0;   // slots freed by a retransmission that did not take the sum along
  std::uint32_t slots = 0;       // slots in use now
  std::uint32_t most_slots = 0;  // the most slots ever in use

  [[nodiscard]] std::uint64_t of(AggregateAction::Cause cause) const {
    return packets[static_cast<std::size_t>(cause)];
  }
};

class AggregateTable {
 public:
  static constexpr std::size_t kMostJobs = 4096;

  // Requires options that validate.
  explicit AggregateTable(const AggregateOptions& options);

  // Fails if the id is in use, the window is 0, or there are too many jobs.
  Status add_job(const AggregateJob& job);
  // Removes a job and frees its slots. Returns false if there is no such job.
  bool remove_job(std::uint32_t id);

  // A gradient packet arrived. Requires a header that decode_atp_header() accepted; rewrites it to
  // that of the packet to emit.
  AggregateAction on_gradient(wire::AtpHeader& header, Time now);
  // Call it before on_gradient: if the packet shows that an earlier one of its sender was lost, the
  // report that goes to the sender, which then sends that one again. A table that sends none works
  // the same, but all workers find such a loss later and send theirs again. `own`: the sender is
  // this server of the job and adds its own gradients itself, so none of its sequences is missing.
  struct OwnServer {
    std::uint32_t index = 0;
    std::uint32_t servers = 1;
  };
  [[nodiscard]] std::optional<wire::AtpHeader> missing_before(
      const wire::AtpHeader& header, const std::optional<OwnServer>& own = {});
  // A parameter or abort packet arrived. The slots that it frees are free when this returns.
  AggregateAction on_parameter(const wire::AtpHeader& header);
  // Adding elements to this slot saturated. Requires a slot in use.
  void mark_saturated(std::uint32_t slot);

  // Examines the next `count` slots, in a cycle, and frees those whose lifetime has passed.
  void sweep(Time now, std::uint32_t count);
  // Frees all slots and keeps the jobs, as if the switch had restarted and been set up again.
  void restart();

  // Where a job's slots lie, if sequences are not hashed: the slot of sequence 0 at the job's first
  // place here, and the distance from one place to the next. Places are the groups in their order,
  // then the second level.
  static std::uint64_t first_slot(const AggregateJob& job, std::size_t slots);
  static std::uint64_t slots_between(const AggregateJob& job, std::size_t slots);

  [[nodiscard]] const AggregateOptions& options() const { return options_; }
  [[nodiscard]] std::uint32_t slots_in_use() const { return in_use_; }
  [[nodiscard]] bool in_use(std::uint32_t slot) const { return slots_[slot].members != 0; }
  // The counters of a job, or null if there is no such job.
  [[nodiscard]] const AggregateCounters* counters(std::uint32_t job) const;
  // The counters of packets whose job is unknown.
  [[nodiscard]] const AggregateCounters& unknown() const { return unknown_; }

  // Appends the state that decides how later packets are handled: equal texts mean equal
  // behaviour. Left out are times and values that are only passed on: marks and the exponents
  // that workers need.
  void encode_state(std::string& out) const;

 private:
  static constexpr std::uint8_t kSecondLevelPlace = 0xff;

  struct Slot {
    std::uint64_t sequence = 0;
    Time touched;  // when the last packet used the slot
    std::uint32_t job = 0;
    // The contributions in the sum: workers of the group, or groups at the second level. 0: free.
    std::uint32_t members = 0;
    std::uint16_t elements = 0;
    std::uint8_t place = 0;  // a group (its first level), or kSecondLevelPlace
    std::uint8_t fan_in = 0;
    std::int8_t exponent = 0;
    std::int8_t next_exponent = 0;
    std::int8_t needed_exponent = 0;
    bool congested = false;
    bool saturated = false;
    std::uint64_t check = 0;
  };
  struct Job {
    AggregateJob about;
    std::uint64_t start = 0;   // first_slot()
    std::uint64_t stride = 0;  // slots_between()
    AggregateCounters counters;
    [[nodiscard]] std::uint32_t id() const { return about.id; }
  };

  [[nodiscard]] Job* find(std::uint32_t id);
  [[nodiscard]] std::uint32_t index_of(const Job& job, std::uint64_t sequence,
                                       std::uint8_t place) const;
  [[nodiscard]] std::uint32_t number_of(const Slot& slot) const {
    return static_cast<std::uint32_t>(&slot - slots_.data());
  }
  [[nodiscard]] static bool serves(const Slot& slot, const wire::AtpHeader& header,
                                   std::uint8_t place);
  [[nodiscard]] static bool differs(const Slot& slot, const wire::AtpHeader& header);
  AggregateAction decide(Job& job, wire::AtpHeader& header, Time now);
  AggregateAction aggregate(Slot& slot, wire::AtpHeader& header);
  AggregateAction claim(Job& job, Slot& slot, wire::AtpHeader& header, Time now);
  AggregateAction flush(Job& job, Slot& slot, wire::AtpHeader& header);
  bool reclaim(Slot& slot, const wire::AtpHeader& header, std::uint32_t window, Time now);
  static AggregateAction pass_on(wire::AtpHeader& header, AggregateAction::Cause cause);
  static void take_marks(Slot& slot, const wire::AtpHeader& header);
  static void emit_sum(const Slot& slot, wire::AtpHeader& header, AggregateAction& action,
                       AggregateAction::Cause cause);
  void free(Slot& slot, Job& owner);

  AggregateOptions options_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;     // sorted by id
  std::size_t last_job_ = 0;  // where find() looks first
  std::uint32_t in_use_ = 0;  // slots
  std::uint32_t cursor_ = 0;  // the slot that sweep() examines next
  AggregateCounters unknown_;
};

}  // namespace thalweg::switches
