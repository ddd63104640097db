// SwitchML's aggregation stage (Sapio et al., "Scaling distributed machine learning with in-network
// aggregation"), the baseline of ATP: the switch is the server, and a job holds a fixed pool of
// slots for its whole life.
//
// A pool has two slots for each place of the window. Sequence s uses place s mod pool, and there
// slot (s / pool) mod 2. A worker sends s only when it has the result of s − pool, so when the
// first packet of s arrives, every worker has the result of s − 2·pool, and s may take its slot.
// The other slot keeps the result of s − pool for workers that lost it.
//
// One point differs from SwitchML's algorithm 3: a slot holds its sequence, which tells late
// duplicates of earlier rounds from packets of this round, so that sums stay exact when packets are
// delayed by more than a round.
//
// A switch that restarts loses results that only some of the workers have received; the jobs that
// still need them fail at their deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "switch/aggregation/aggregate.h"

namespace thalweg::sim {

struct SwitchmlJob {
  std::uint32_t id = 0;
  std::uint32_t workers = 1;  // 1 to 32
  std::uint32_t pool = 64;  // the workers' window in packets, above 0; it takes twice as many slots
};

class SwitchmlTable {
 public:
  static constexpr std::size_t kMostJobs = switches::AggregateTable::kMostJobs;

  // Requires options that validate; the lifetime and the flags are not used.
  explicit SwitchmlTable(const switches::AggregateOptions& options);

  // Fails if the id is taken, if workers or pool are out of range, or if too few slots are left for
  // the job.
  Status add_job(const SwitchmlJob& job);
  // Returns false if there is no job with this id.
  bool remove_job(std::uint32_t id);

  // Takes an update packet whose header decoded well. If the action emits a sum, `header` becomes
  // that of a result.
  switches::AggregateAction on_update(wire::AtpHeader& header);
  void restart();

  [[nodiscard]] std::uint32_t slots_in_use() const;
  [[nodiscard]] const switches::AggregateCounters* counters(std::uint32_t job) const;
  [[nodiscard]] const switches::AggregateCounters& unknown() const { return unknown_; }
  void encode_state(std::string& out) const;

 private:
  struct Slot {
    std::uint64_t sequence = 0;
    std::uint32_t members = 0;  // bit set of workers; 0: no sequence yet
    std::uint16_t elements = 0;
    std::int8_t exponent = 0;
    std::int8_t next_exponent = 0;
    bool congested = false;
    bool saturated = false;
  };
  struct Job {
    SwitchmlJob about;
    std::uint32_t first_slot = 0;
    switches::AggregateCounters counters;
    [[nodiscard]] std::uint32_t id() const { return about.id; }
  };

  [[nodiscard]] Job* find(std::uint32_t id);
  [[nodiscard]] std::uint32_t room_for(std::uint32_t count) const;
  switches::AggregateAction decide(const Job& job, wire::AtpHeader& header);
  static void make_result(const Slot& slot, wire::AtpHeader& header, std::uint32_t receivers);

  switches::AggregateOptions options_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;  // by id
  switches::AggregateCounters unknown_;
};

}  // namespace thalweg::sim
