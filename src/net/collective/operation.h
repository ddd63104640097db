// One operation in flight on this rank: what a handle of the caller's and the engine share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "exec/executor.h"

namespace thalweg {

class Engine;

struct Operation::State {
  std::shared_ptr<Engine> engine;

  // Set before it starts.
  std::string text;  // the call in words: "allreduce of 100 float32, sum"
  std::uint64_t signature = 0;
  std::shared_ptr<const RankPlan> plan;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::byte*> memory;   // of each buffer of the plan
  std::vector<std::byte> scratch;   // memory of the operation's own
  std::function<void()> last_step;  // when all has arrived: what the plan does not do
  int priority = 0;
  Duration limit;

  // With the engine's mutex.
  std::uint32_t number = 0;
  std::unique_ptr<Executor> executor;  // while it runs
  Time started;
  Time deadline;
  Time ask_at;                   // next
  bool has_streams = false;      // to all its peers
  std::optional<Status> result;  // it is over
};

}  // namespace thalweg
