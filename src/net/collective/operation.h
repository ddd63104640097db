// One operation in flight on this rank: what a handle of the caller's and the engine share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>
#include <thalweg/endpoint.h>

#include "base/units.h"
#include "exec/chunk_executor.h"
#include "exec/executor.h"

namespace thalweg {

// Who runs operations: the engine the collectives, the mailbox the messages.
class OperationHost {
 public:
  virtual ~OperationHost() = default;
  // Blocks until it is over.
  [[nodiscard]] virtual Status wait(Operation::State& op) = 0;
  [[nodiscard]] virtual bool over(const Operation::State& op) = 0;
};

inline constexpr int kAnyPeer = -1;

struct KnownCall;

struct Operation::State {
  std::shared_ptr<OperationHost> host;

  // Set before it starts.
  std::shared_ptr<const KnownCall> known;  // null: of a message, or over ATP
  std::string text;                        // the call in words: "allreduce of 100 float32, sum"
  std::uint64_t signature = 0;
  std::shared_ptr<const RankPlan> plan;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::byte*> memory;  // of each buffer of the plan
  std::vector<std::byte> scratch;  // memory of the operation's own
  // When all has arrived, what the plan does not do: first this, of each part by itself if it is
  // divided, then that.
  std::function<void(State& part)> part_step;
  std::function<void()> last_step;
  int priority = 0;
  bool awaited = false;  // its caller waits for it as soon as it has started, and so drives
  Duration limit;
  std::function<void()> on_over;  // CallOptions has it
  // Over DLCP, if it is set: the operation's peers, and how its transfers go.
  std::vector<std::vector<Peer>> dlcp_peers;  // of plan->peers(), one a way
  struct Dlcp {
    double reduce_bound = 0;            // of transfers that are added up
    double copy_bound = 0;              // of results
    std::int64_t segment_elements = 0;  // with a bound above 0: that fit a packet
    std::uint8_t queue = 1;             // of its packets' tags
  };
  std::optional<Dlcp> dlcp;
  // Of messages.
  std::byte* tensor = nullptr;
  std::int64_t elements = 0;
  bool sends = false;
  int peer = kAnyPeer;  // once a receive is over: whose message it was
  std::uint32_t tag = 0;

  // Divided among channels (channels.h): what each engine runs.
  std::vector<std::shared_ptr<State>> parts;
  std::atomic<std::size_t> parts_left = 0;

  // With the engine's mutex.
  std::uint32_t number = 0;
  std::unique_ptr<Executor> executor;     // while it runs over streams
  std::unique_ptr<ChunkExecutor> chunks;  // over DLCP, and as long as a transfer may use it
  std::vector<Transfer> transfers;        // over DLCP, in flight or over
  // Over DLCP: of a chunk that goes several ways, the parts that are not over.
  struct Parts {
    std::size_t left = 0;
    std::vector<ChunkExecutor::Lost> lost = {};
  };
  std::vector<Parts> arriving;  // [slot]
  std::vector<Parts> leaving;   // [send]
  [[nodiscard]] bool runs() const { return (executor || chunks) && !result; }
  [[nodiscard]] bool outstanding(std::uint32_t slot) const {
    return executor ? executor->outstanding(slot) > 0 : chunks->outstanding(slot);
  }
  Time started;
  Time deadline;
  Time ask_at;                   // next
  bool has_streams = false;      // to all its peers
  bool at_once = false;          // it was over when it had started: only its caller knows it
  std::optional<Status> result;  // it is over; set by end()
  void end(Status status) {
    result = std::move(status);
    if (on_over) std::exchange(on_over, nullptr)();
  }
  // One that is over, over streams, and the caller's alone: to be started again by the same call,
  // with other memory.
  void renew() {
    memory.clear();
    part_step = nullptr;
    last_step = nullptr;
    has_streams = false;
    at_once = false;
    result.reset();
  }
};

}  // namespace thalweg
