// One operation in flight on this rank. The caller's handle and its host share it. Each transport
// has a kind of its own: StreamOperation, DlcpOperation, AtpOperation and MessageOperation.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "net/group/operation/step_notes.h"
#include "net/io/home_process.h"
#include "proto/collective/call.h"

namespace thalweg {

// Runs operations: an engine, the mailbox, or what divides operations among engines.
class OperationHost {
 public:
  virtual ~OperationHost() = default;
  // Blocks until the operation is over.
  [[nodiscard]] virtual Status wait(Operation::State& op) = 0;
  [[nodiscard]] virtual bool over(const Operation::State& op) = 0;
};

inline constexpr int kAnyPeer = -1;

struct Operation::State : proto::CollectiveCall {
  using Notes = std::vector<std::shared_ptr<const net::StepNotes>>;

  net::HomeProcess home;
  // Set before the operation starts.
  std::shared_ptr<OperationHost> host;
  std::function<void()> on_over;          // CallOptions::on_over
  std::shared_ptr<net::StepNotes> notes;  // null: nobody reads them

  // Guarded by the host's lock.
  std::optional<Status> result;  // set by end(): the operation is over
  bool at_once = false;          // it was over when it had started: only its caller knows it

  void end(Status status) {
    result = std::move(status);
    if (on_over) std::exchange(on_over, nullptr)();
  }
  // After a receive: the rank that sent the message.
  [[nodiscard]] virtual int source() const { return kAnyPeer; }
  // It is a StreamOperation that can be renewed.
  [[nodiscard]] virtual bool is_renewable() const { return false; }
  // The notes of the operation, and of its parts if it was divided.
  [[nodiscard]] virtual Notes all_notes() const { return notes ? Notes{notes} : Notes{}; }

  // What the protocol asks: an operation that needs no streams.
  [[nodiscard]] const std::vector<Rank>& peers() const override {
    static const std::vector<Rank> none;
    return none;
  }
  [[nodiscard]] bool takes(Rank /*peer*/, std::uint32_t /*arrival*/,
                           std::uint32_t /*bytes*/) const override {
    return false;
  }
  [[nodiscard]] bool has_data_for(Rank /*peer*/) const override { return false; }
  [[nodiscard]] bool needs(Rank /*peer*/) const override { return false; }
  [[nodiscard]] std::optional<Rank> waits_for() const override { return std::nullopt; }
  [[nodiscard]] bool done() const override { return false; }
};

namespace net {
using proto::has_left;
}  // namespace net

}  // namespace thalweg
