// Channels: divides large tensors into parts that move at the same time, most of them one per
// engine, so that several cores move them.
//
// An engine moves all its bytes in one thread at a time. A channel is one more engine, with
// streams, shared memory and a thread of its own. An operation that is large enough is divided:
// every engine runs the operation's plan on one part of each chunk (RankPlan::part). What is added
// to an element, and in which order, does not change, so results do not depend on the number of
// channels.
//
// Rank 0 decides how many engines there are, once, and tells the others through the store. On a
// slow network, parts of a tensor only compete, and the last of them is later than the whole would
// be. So there is more than one only if a number is configured, or if the network is faster than
// one thread. Within a host it is, and most interfaces say their rate; then rank 0 decides when the
// communicator is created. Otherwise it looks at how fast its first large operations are, and its
// decision holds from operation kDecidedFrom on. The others read it when they reach that one, so
// that all ranks divide the same operations, and hardly ever wait for it.
//
// Over DLCP the first engine runs all parts. While it waits for the end of one part's transfers,
// the other parts keep the network busy.
//
// The caller drives the first engine, as without channels; the others work alone. An operation is
// over when all its parts are, because only then does nothing touch its memory. The first engine
// that breaks also breaks the others, with the same error, so that this happens soon.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/group/drive/engine.h"
#include "net/group/operation/planned_operation.h"

namespace thalweg::net {

struct ChannelsOptions {
  // The least bytes of a part that is worth a thread. The same on all ranks.
  std::size_t least_part = 0;
  // say() publishes the first rank's word for the operations from number `from` on; hear() waits
  // for it. Both block until `until` at the latest.
  std::function<Status(std::size_t from, const std::string& word, Time until)> say;
  std::function<Result<std::string>(std::size_t from, Time until)> hear;
  // For the first rank: how many engines there are if the network is fast, and whether it is. None:
  // it is not known.
  bool is_first = false;
  std::size_t most = 1;
  std::optional<bool> fast = {};
  DebugLog log;
  // Makes engine number 1, 2, …
  std::function<Result<std::shared_ptr<Engine>>(
      std::size_t number, std::function<void(const Error&)> on_broken, Time until)>
      make_engine;
};

// The first rank's decision: how many engines run an operation, or that it is not made yet.
struct ChannelsWord {
  static constexpr std::string_view kLater = "later";

  std::optional<std::size_t> count;
  [[nodiscard]] std::string to_string() const;
  static Result<ChannelsWord> parse(const std::string& text);
};

class Channels final : public OperationHost, public std::enable_shared_from_this<Channels> {
 public:
  explicit Channels(ChannelsOptions options) : options_(std::move(options)) {}
  // The first rank publishes its first decision.
  [[nodiscard]] Status open(Time until);
  // Sets the first engine. Call once, before start(). The engine must call broken() when it breaks.
  void set_first(std::shared_ptr<Engine> engine);

  // Whether an operation may be divided. Such an operation is started by start() below.
  [[nodiscard]] bool may_divide(const PlannedOperation& op) const;
  // Like Engine::start().
  void start(const std::shared_ptr<PlannedOperation>& op);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // An engine is broken. Any thread may call it, with any lock held.
  void broken(const Error& why);
  // Tells the other ranks that this one leaves, and fails the operations in flight. Waits for
  // nothing.
  void say_goodbye();
  // The same; then ends the engines.
  void leave();

 private:
  using Op = PlannedOperation;

  // The number of parts of the operation.
  [[nodiscard]] std::size_t parts_of(const Op& op) const;
  // Why an operation cannot be started: the first engine's reason if it has one, or `error`.
  // Waits for that reason for a moment, until `until` at the latest.
  [[nodiscard]] Error reason_of(const Error& error, Time until) const;
  // Takes over the first rank's word that begins to hold with this operation.
  Status ask(Time until);
  [[nodiscard]] Result<ChannelsWord> hear(Time until) const;
  // The first rank publishes what it has measured, if this is the operation to do so.
  Status say_measured(Time until);
  void measure(Op& op);
  Status make_engines(std::size_t count, Time until);
  void divide(const std::shared_ptr<Op>& op, std::size_t count);
  void part_over(Op& op);

  ChannelsOptions options_;
  std::mutex order_;       // held while an operation is passed to all engines
  std::size_t large_ = 0;  // guarded by order_: large operations so far, except those over DLCP
  ChannelsWord word_;      // guarded by order_
  bool left_ = false;      // guarded by order_
  // For the first rank: the highest rate of an operation so far, in bits per second.
  std::atomic<double> fastest_ = 0;
  std::mutex mutex_;  // guards what follows; may be taken while an engine's lock is held
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::optional<Error> broken_;
};

// How many engines there are on a fast network unless a number is configured: as many as a rank has
// cores, at most four.
[[nodiscard]] int usual_channels(int local_ranks);

}  // namespace thalweg::net
