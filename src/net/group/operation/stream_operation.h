// StreamOperation: a collective over TCP streams or shared memory. MessageOperation: a message
// between two ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "exec/stream_executor.h"
#include "net/group/operation/planned_operation.h"

namespace thalweg::net {

// What a connection moves the bytes of.
struct Streamed {
  std::unique_ptr<exec::StreamExecutor> executor;  // while it runs; guarded by its host's lock
};

struct StreamOperation final : PlannedOperation, Streamed {
  StreamOperation() : PlannedOperation(false) {}
  [[nodiscard]] std::shared_ptr<PlannedOperation> alike() const override {
    return std::make_shared<StreamOperation>();
  }
  [[nodiscard]] bool is_renewable() const override { return known && !division; }
  // Makes it ready to be started again by the same call, with other memory. Requires that it is
  // over, was not divided, and has no other owner.
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

  [[nodiscard]] bool takes(Rank peer, std::uint32_t arrival, std::uint32_t bytes) const override {
    return executor && executor->takes(peer, arrival, bytes);
  }
  [[nodiscard]] bool has_data_for(Rank peer) const override {
    return executor && executor->has_data_for(peer);
  }
  [[nodiscard]] bool needs(Rank peer) const override { return executor && executor->needs(peer); }
  [[nodiscard]] std::optional<Rank> waits_for() const override {
    return executor && !result ? executor->waits_for() : std::nullopt;
  }
  [[nodiscard]] bool done() const override { return executor && executor->done(); }
};

struct MessageOperation final : Operation::State, Streamed {
  // Set before the operation starts.
  DType type = DType::kFloat32;
  std::byte* tensor = nullptr;
  std::int64_t elements = 0;
  bool sends = false;
  int peer = kAnyPeer;  // after a receive: the rank that sent the message
  std::uint32_t tag = 0;

  // Set when the receiver has called for it.
  std::optional<exec::RankPlan> plan;

  [[nodiscard]] int source() const override { return peer; }
};

}  // namespace thalweg::net
