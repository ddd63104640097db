// StepNotes: what happened within one operation, for the timeline (net/job/timeline.h): when each
// transfer of the plan moved at this rank, what was sent again, what never came, and how long data
// waited because this rank had not made its call. An operation has notes only if a timeline is
// written.
//
// The engine that runs the operation writes, under its mutex. Others may read when the operation is
// over.
//
// Invariant: at most kMostNotes of each kind are kept; left_out() counts the others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include <thalweg/endpoint.h>

#include "base/units.h"
#include "exec/rank_plan.h"
#include "exec/stream_executor.h"

namespace thalweg::net {

class StepNotes {
 public:
  static constexpr std::size_t kMostNotes = 4096;

  // A transfer, from its first bytes at this rank to its last.
  struct Step {
    Time start;
    Time end;
    Rank peer;
    bool sends = false;
    ChunkIndex chunk;
    std::size_t bytes = 0;
  };
  struct Loss {
    Time at;
    Rank peer;
    bool sends = false;
    bool again = false;      // packets that were sent again; otherwise elements that never came
    std::int64_t count = 0;  // above 0
  };
  // The peer's data waited until this rank had made the call.
  struct Stall {
    Time start;
    Time end;
    Rank peer;
  };

  // The operation starts. The plan must outlive the writing of notes.
  void begin(const exec::RankPlan& plan);
  // Some bytes of a send leave, or of an arrival arrive. Both require begin().
  void on_send(std::uint32_t send, Time now);
  void on_arrival(std::uint32_t arrival, Time now);
  // Ends the transfers that are complete.
  void look(const exec::StreamExecutor& executor, Time now);
  // Over DLCP a transfer is known only as a whole, when it is over. `index`: of a send, or an
  // arrival.
  void add_transfer(bool sends, std::uint32_t index, const TransferReport& report, Time now);
  void add_loss(const Loss& loss);
  void add_stall(const Stall& stall);
  // The operation is over: ends all transfers.
  void close(Time now);

  [[nodiscard]] const std::vector<Step>& steps() const { return steps_; }
  [[nodiscard]] const std::vector<Loss>& losses() const { return losses_; }
  [[nodiscard]] const std::vector<Stall>& stalls() const { return stalls_; }
  [[nodiscard]] std::size_t left_out() const { return left_out_; }

 private:
  struct Open {
    std::uint32_t index;  // of a send, or an arrival
    bool sends;
    Time start;
  };
  void end(const Open& open, Time now);

  const exec::RankPlan* plan_ = nullptr;
  std::vector<char> sent_;     // [send]: some of it has left
  std::vector<char> arrived_;  // [arrival]: some of it has arrived
  std::vector<Open> open_;
  std::vector<Step> steps_;
  std::vector<Loss> losses_;
  std::vector<Stall> stalls_;
  std::size_t left_out_ = 0;
};

}  // namespace thalweg::net
