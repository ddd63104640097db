// What Transport::kAuto knows about the calls of one communicator: for each kind of call, the
// candidates by which it may go, their trials (proto/auto/auto_choice.h) and the report that is in
// flight.
//
// Costs. The calls of a training step are in flight together and share the network, so the time of
// one of them depends on the others, and on which of them is over first. A candidate is
// therefore judged by all of them: what counts is the time in which any call was in flight, from
// the start of a call to the start of the next one of its kind. Kinds are tried one after the
// other, the one that has moved the most bytes first, while all others keep their candidates. A
// kind with a small share of the bytes follows the first one, because calls of different schemes
// delay each other.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/communicator.h>

#include "base/units.h"
#include "net/group/operation/planned_operation.h"
#include "proto/auto/auto_choice.h"

namespace thalweg::net {

// Calls of one kind are tried together: an allreduce of 2^k to 2^(k + 1) − 1 bytes.
struct AutoKind {
  ReduceOp op = ReduceOp::kSum;
  DType type = DType::kFloat32;
  int size_class = 0;    // k
  bool bounded = false;  // the caller allows a loss
  auto operator<=>(const AutoKind&) const = default;
};
[[nodiscard]] AutoKind auto_kind_of(ReduceOp op, DType type, std::int64_t bytes, bool bounded);
// "allreduce of float32, mean, 1MiB to 2MiB".
[[nodiscard]] std::string to_string(const AutoKind& kind);

struct AutoCandidate {
  Transport transport = Transport::kTcp;
  std::string scheme = {};  // empty over ATP
  [[nodiscard]] std::string to_string() const;
  bool operator==(const AutoCandidate&) const = default;
};

// The calls of one kind.
struct AutoCalls {
  AutoKind kind;
  std::vector<AutoCandidate> candidates;  // the first is the planner's
  std::int64_t count = 0;
  double bytes = 0;                               // of all of them
  std::optional<proto::AutoChoice> choice = {};   // none: it has had no trials
  std::shared_ptr<PlannedOperation> report = {};  // being combined
  // The last call that was dealt, and how long calls had been in flight when it was.
  std::optional<std::uint64_t> last = {};
  Duration busy_before = {};
  [[nodiscard]] bool decided() const { return choice && choice->decided(); }
};

// Knows how long calls were in flight. Any thread may use it, with any lock held.
class AutoMeter : public std::enable_shared_from_this<AutoMeter> {
 public:
  // A call starts now. Returns a function to call when it is over, which calls `then`. `dealt`: it
  // is counted among the calls of its kind that are over.
  [[nodiscard]] std::function<void()> watch(const AutoKind& kind, bool dealt,
                                            std::function<void()> then);
  // The time, so far, in which any call was in flight.
  [[nodiscard]] Duration busy() const;
  // The kinds of the calls that are over since the last time.
  [[nodiscard]] std::vector<AutoKind> take();

 private:
  mutable std::mutex mutex_;  // guards what follows; nothing is called while it is held
  std::size_t flying_ = 0;
  Time since_;  // when the first of those in flight started
  Duration busy_;
  std::vector<AutoKind> over_;
};

// How an allreduce goes that Transport::kAuto decides about.
struct AutoTurn {
  CallOptions options;  // with transport and scheme
  AutoKind kind = {};
  bool dealt = false;
  std::shared_ptr<AutoMeter> meter = {};  // null: the call is not measured
  // The operation starts now: measures it.
  [[nodiscard]] std::function<void()> watch(std::function<void()> then) const {
    return meter ? meter->watch(kind, dealt, std::move(then)) : std::move(then);
  }
};

// All kinds of calls of a communicator.
struct AutoTable {
  mutable std::mutex order;  // held while a call is dealt and started, so that all ranks deal alike
  bool prepared = false;     // guarded by order, like what follows
  bool over_dlcp = false;    // packets of DLCP reach the neighbours
  std::map<AutoKind, AutoCalls> calls;
  AutoCalls* trying = nullptr;  // the kind that has trials now
  AutoCalls* first = nullptr;   // the first kind that had some
  int tried = 0;                // kinds that have had trials
  double bytes = 0;             // of all calls
  std::shared_ptr<AutoMeter> meter = std::make_shared<AutoMeter>();

  // Whether the share of the kind is too small for trials of its own.
  [[nodiscard]] bool follows(const AutoCalls& kind) const;
  // Whether it is this kind's turn to begin trials.
  [[nodiscard]] bool may_begin(const AutoCalls& kind) const;
  // The candidate of a kind that has had no trials.
  [[nodiscard]] const AutoCandidate& untried(const AutoCalls& kind) const;
  [[nodiscard]] AutoDecision decision(const AutoCalls& kind) const;
};

}  // namespace thalweg::net
