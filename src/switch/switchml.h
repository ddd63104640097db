// SwitchML's aggregation stage (Sapio et al., "Scaling distributed machine learning with in-network
// aggregation"), the baseline of ATP: the switch is the server, and a job holds a fixed pool of
// slots for its whole life.
//
// A pool has two slots for each place of the window. Sequence s uses place s mod pool, and of its
// two slots the one of (s / pool) mod 2. A worker sends s only when it has the result of s − pool,
// so when the first packet of s arrives, every worker has the result of s − 2·pool, whose slot it
// takes. The other slot keeps the result of s − pool for workers that lost it.
//
// Differs from SwitchML's algorithm 3 in one point: the sequence in the slot tells late duplicates
// of earlier rounds from packets of this one, so that sums stay exact when packets are delayed by
// more than a round.
//
// A restarted switch has lost results that only some workers have: those jobs end at their
// deadline.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "switch/aggregate.h"

namespace thalweg {

struct SwitchmlJob {
  std::uint32_t id = 0;
  std::uint32_t workers = 1;  // 1 to 32
  std::uint32_t pool = 64;    // the workers' window in packets; takes twice as many slots. Above 0
};

class SwitchmlTable {
 public:
  static constexpr std::size_t kMostJobs = AggregateTable::kMostJobs;

  // Requires options that validate; lifetime and the flags have no meaning here.
  explicit SwitchmlTable(const AggregateOptions& options);

  // Fails on an id that is there already, workers or pool out of range, and when the slots that are
  // left are fewer than the job needs.
  Status add_job(const SwitchmlJob& job);
  // False: there is none.
  bool remove_job(std::uint32_t id);

  // An update packet whose header decoded well. Emitted headers are those of results.
  AggregateAction on_update(AtpHeader& header);
  void restart();

  [[nodiscard]] std::uint32_t slots_in_use() const;
  [[nodiscard]] const AggregateCounters* counters(std::uint32_t job) const;
  [[nodiscard]] const AggregateCounters& unknown() const { return unknown_; }
  void encode_state(std::string& out) const;

 private:
  struct Slot {
    std::uint64_t sequence = 0;
    std::uint32_t members = 0;  // 0: no sequence yet
    std::uint16_t elements = 0;
    std::int8_t exponent = 0;
    std::int8_t next_exponent = 0;
    bool congested = false;
    bool saturated = false;
  };
  struct Job {
    SwitchmlJob about;
    std::uint32_t first_slot = 0;
    AggregateCounters counters;
    [[nodiscard]] std::uint32_t id() const { return about.id; }
  };

  [[nodiscard]] Job* find(std::uint32_t id);
  [[nodiscard]] std::uint32_t room_for(std::uint32_t count) const;
  AggregateAction decide(const Job& job, AtpHeader& header);
  static void make_result(const Slot& slot, AtpHeader& header, std::uint32_t receivers);

  AggregateOptions options_;
  std::vector<Slot> slots_;
  std::vector<Job> jobs_;  // by id
  AggregateCounters unknown_;
};

}  // namespace thalweg
