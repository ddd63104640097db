// PlanBuilder: generators write plans with it. It keeps the version of every buffer, so a generator
// only says who sends what to whom, round by round.
//
// Within a round every transfer carries the version that its source had when the round began, so
// ranks that swap in one round do not see each other's half-done work. Rounds order only transfers
// of the same chunk; they are not a barrier.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

#include "plan/plan.h"

namespace thalweg::plan {

class PlanBuilder {
 public:
  // `header` has everything but chunks and transfers.
  explicit PlanBuilder(Plan header) : plan_(std::move(header)) {}

  // An empty chunk (length 0) is not added: its id is invalid, and its transfers are ignored. So
  // small tensors over many ranks need no special case.
  ChunkIndex add_chunk(Share share, Rank source = {}, Rank target = {});

  void begin_round() { ++round_; }
  void reduce(Rank from, Rank to, ChunkIndex chunk) { add(from, to, chunk, TransferKind::kReduce); }
  void copy(Rank from, Rank to, ChunkIndex chunk) { add(from, to, chunk, TransferKind::kCopy); }

  [[nodiscard]] const Plan& plan() const { return plan_; }
  Plan finish() && { return std::move(plan_); }

 private:
  struct Buffer {
    std::int32_t version = 0;
    std::int32_t version_at_round_start = 0;
    std::int32_t round = 0;  // the round that version_at_round_start belongs to
  };

  void add(Rank from, Rank to, ChunkIndex chunk, TransferKind kind);
  [[nodiscard]] std::uint64_t key(Rank rank, ChunkIndex chunk) const;

  Plan plan_;
  // The buffers that something has arrived at; all others are at version 0.
  std::unordered_map<std::uint64_t, Buffer> buffers_;
  std::int32_t round_ = 0;
};

}  // namespace thalweg::plan
