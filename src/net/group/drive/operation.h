// One operation in flight on this rank. The caller's handle and the engine share it.
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

#include "base/segment_tag.h"
#include "base/units.h"
#include "exec/executor.h"
#include "exec/segment_executor.h"
#include "net/group/drive/step_notes.h"
#include "net/io/home_process.h"
#include "proto/collective/call.h"

namespace thalweg {

// Runs operations. Engines run the collectives, and the mailbox runs the messages.
class OperationHost {
 public:
  virtual ~OperationHost() = default;
  // Blocks until the operation is over.
  [[nodiscard]] virtual Status wait(Operation::State& op) = 0;
  [[nodiscard]] virtual bool over(const Operation::State& op) = 0;
};

inline constexpr int kAnyPeer = -1;

// Elements of a segment, where packets to the peers differ in size: chunks are not divided.
inline constexpr std::int64_t kWholeChunks = std::int64_t{1} << 40;

namespace net {
struct KnownCall;
using proto::has_left;
}  // namespace net

struct Operation::State final : proto::CollectiveCall {
  net::HomeProcess home;
  std::shared_ptr<OperationHost> host;

  // Set before the operation starts.
  std::shared_ptr<const net::KnownCall> known;  // null for messages and over ATP
  std::shared_ptr<const exec::RankPlan> plan;
  DType type = DType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  std::vector<std::byte*> memory;  // one for each buffer of the plan
  std::vector<std::byte> scratch;  // memory that belongs to the operation
  // What the plan does not do, called when everything has arrived: part_step for each part of a
  // divided operation, or for the whole of an undivided one; then last_step once.
  std::function<void(State& part)> part_step;
  std::function<void()> last_step;
  // Its caller waits for it, and so drives the engine, as soon as it has started.
  bool awaited = false;
  std::function<void()> on_over;          // CallOptions::on_over
  std::shared_ptr<net::StepNotes> notes;  // null: nobody reads them
  // Set if the operation goes over DLCP: its peers, and the options of its transfers.
  std::vector<std::vector<Peer>> dlcp_peers;  // for each of plan->peers(), one Peer per way
  struct Dlcp {
    double reduce_bound = 0;  // loss bound of transfers that are added up
    double copy_bound = 0;    // loss bound of transfers of results
    // How chunks are divided into packets. It is counted with a bound above 0.
    exec::SegmentExecutor::Layout layout;
    std::uint8_t queue = 1;  // queue of its packets
  };
  std::optional<Dlcp> dlcp;
  // Set for messages, and for allreduces over ATP.
  std::byte* tensor = nullptr;
  std::int64_t elements = 0;
  bool sends = false;
  int peer = kAnyPeer;  // after a receive: the rank that sent the message
  std::uint32_t tag = 0;

  // If the operation is divided among channels (channels.h): its parts, and how many are not over.
  std::vector<std::shared_ptr<State>> parts;
  std::atomic<std::size_t> parts_left = 0;

  // Guarded by the engine's mutex.
  std::unique_ptr<exec::Executor> executor;  // while it runs over streams
  // Over DLCP; it stays as long as a transfer may use it.
  std::unique_ptr<exec::SegmentExecutor> chunks;
  std::vector<Transfer> transfers;  // over DLCP, in flight or over
  // Over DLCP: for each chunk, how many of its parts, one per way, are not over.
  std::vector<std::size_t> arriving;  // [slot]
  struct Leaving {
    std::vector<Transfer> parts = {};  // empty: nothing of it is ready
    std::size_t left = 0;
  };
  std::vector<Leaving> leaving;               // [send]
  std::vector<std::vector<SegmentTag>> tags;  // [buffer][segment], if packets may be lost
  [[nodiscard]] bool runs() const { return (executor || chunks) && !result; }
  bool has_streams = false;      // it has streams to all its peers
  bool at_once = false;          // it was over when start() returned: only its caller knows it
  std::optional<Status> result;  // set by end(): the operation is over
  void end(Status status) {
    result = std::move(status);
    if (on_over) std::exchange(on_over, nullptr)();
  }
  // Makes it ready to be started again by the same call, with other memory. Requires that it is
  // over, went over streams, and has no other owner.
  void renew() {
    memory.clear();
    part_step = nullptr;
    last_step = nullptr;
    has_streams = false;
    at_once = false;
    has_times = false;
    lost.reset();
    notes.reset();
    result.reset();
  }

  // What the protocol asks. Over DLCP, nothing depends on a stream: an operation learns of a lost
  // peer from its endpoint, after what the peer still sent.
  [[nodiscard]] const std::vector<Rank>& peers() const override {
    static const std::vector<Rank> none;
    return plan ? plan->peers() : none;
  }
  [[nodiscard]] bool takes(Rank from, std::uint32_t slot, std::uint32_t bytes) const override {
    return executor && executor->takes(from, slot, bytes);
  }
  [[nodiscard]] bool has_data_for(Rank to) const override {
    return executor && executor->has_data_for(to);
  }
  [[nodiscard]] bool needs(Rank rank) const override { return executor && executor->needs(rank); }
  [[nodiscard]] std::optional<Rank> waits_for() const override {
    if (!runs()) return std::nullopt;
    if (executor) return executor->waits_for();
    for (std::uint32_t slot = 0; slot < plan->arrivals().size(); ++slot) {
      if (chunks->outstanding(slot)) return plan->arrivals()[slot].source;
    }
    for (std::uint32_t send = 0; send < leaving.size(); ++send) {
      if (leaving[send].left > 0) return plan->sends()[send].target;
    }
    return std::nullopt;
  }
  [[nodiscard]] std::string obstacle(Rank rank) const override;
  [[nodiscard]] bool done() const override { return executor && executor->done(); }
};

}  // namespace thalweg
