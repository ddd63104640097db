// PlannedOperation: an operation that runs this rank's part of a plan on the caller's memory. What
// moves the data is one of its two kinds: StreamOperation or DlcpOperation.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include <thalweg/types.h>

#include "exec/rank_plan.h"
#include "net/group/operation/operation.h"

namespace thalweg::net {

struct KnownCall;

struct PlannedOperation : Operation::State {
  const bool is_dlcp;  // it is a DlcpOperation
  // Set before the operation starts.
  std::shared_ptr<const KnownCall> known;
  std::shared_ptr<const exec::RankPlan> plan;  // null: nothing has to be sent
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::byte*> memory;  // one for each buffer of the plan
  std::vector<std::byte> scratch;  // memory that belongs to the operation
  // What the plan does not do, called when everything has arrived: part_step for each part of a
  // divided operation, or for the whole of an undivided one; then last_step once.
  std::function<void(PlannedOperation& part)> part_step;
  std::function<void()> last_step;
  // Its caller waits for it, and so drives the engine, as soon as it has started.
  bool awaited = false;

  // If the operation is divided among channels (channels.h): its parts, and how many are not over.
  struct Division {
    std::vector<std::shared_ptr<PlannedOperation>> parts;
    std::atomic<std::size_t> left = 0;
  };
  std::unique_ptr<Division> division;

  // Guarded by the engine's mutex.
  bool has_streams = false;  // it has streams to all its peers

  // An operation of the same kind and options, for a part of this one.
  [[nodiscard]] virtual std::shared_ptr<PlannedOperation> alike() const = 0;
  // When everything has arrived: turns sums into averages (`mean`), or into sums of what is known.
  virtual void average(bool mean, int ranks);
  // Error feedback (CallOptions::residual), after average(): `tensor` begins the caller's tensor of
  // `bytes`, and `residual` holds this rank's contribution to it.
  virtual void keep_residual(int ranks, const std::byte* tensor, std::size_t bytes,
                             std::byte* residual) const;

  [[nodiscard]] Notes all_notes() const override;
  [[nodiscard]] const std::vector<Rank>& peers() const override {
    return plan ? plan->peers() : Operation::State::peers();
  }

 protected:
  explicit PlannedOperation(bool dlcp) : is_dlcp(dlcp) {}
};

}  // namespace thalweg::net
