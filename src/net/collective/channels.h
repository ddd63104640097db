// Channels: large tensors in parts that move at the same time, most of them one an engine, so that
// several cores move them.
//
// An engine moves all its bytes in one thread, whoever drives it. A channel is one more engine,
// with streams, shared memory and a thread of its own. An operation that is large enough is
// divided: every engine runs the operation's plan on one part of each of its chunks
// (RankPlan::part). What is added to an element, and in which order, stays the same: results do not
// depend on the number of channels.
//
// How many there are is what rank 0 says, in the store: unless it is told, one at first, and more
// if it then moves data faster than a slow network could, so that its thread is the limit. (On a
// slow one parts of a tensor only compete, and the last of them is later than the whole would be.)
// Its first word comes when it is created. With its large operation number 4, 16, 64 and 256 it
// says how many there are from four times that number on; the others ask there, so that all divide
// the same operations, and hardly ever wait for it.
//
// Over DLCP, where whole chunks move one after the other, all parts run on the first engine: while
// the end of one chunk is waited for, and in each step of the plan, others fill the link.
//
// The caller drives the first engine, as always; the others work alone. An operation is over when
// all its parts are, because only then nobody touches its memory. The first engine that breaks
// breaks the others, with its words, so that this is soon.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/collective/engine.h"
#include "net/collective/operation.h"

namespace thalweg {

struct ChannelsOptions {
  // No part is smaller, so that it is worth a thread. The same on all ranks.
  std::size_t least_part = 0;
  // What the first rank says of the operations from number `from` on. Both block until the time at
  // the latest.
  std::function<Status(std::size_t from, const std::string& word, Time until)> say;
  std::function<Result<std::string>(std::size_t from, Time until)> hear;
  // Of the first rank. The most it says, and whether it says so at once.
  bool is_first = false;
  std::size_t most = 1;
  bool at_once = false;
  // Engine number 1, 2, …
  std::function<Result<std::shared_ptr<Engine>>(
      std::size_t number, std::function<void(const std::string&)> on_broken, Time until)>
      make_engine;
};

// How many engines run an operation, and with which one the ranks ask again; 0: never.
struct ChannelsWord {
  std::size_t count = 1;
  std::size_t again = 0;
  [[nodiscard]] std::string to_string() const;
  // `from`: it is said of the operations from there on.
  static Result<ChannelsWord> parse(const std::string& text, std::size_t from);
};

class Channels final : public OperationHost, public std::enable_shared_from_this<Channels> {
 public:
  explicit Channels(ChannelsOptions options) : options_(std::move(options)) {}
  // Says the first word, if it is ours to say.
  [[nodiscard]] Status open(Time until);
  // The first engine, once, before the others; it calls broken() when it breaks.
  void set_first(std::shared_ptr<Engine> engine);

  // Whether an operation may be divided. Then it is started here.
  [[nodiscard]] bool may_divide(const Operation::State& op) const;
  // As the engine's.
  void start(const std::shared_ptr<Operation::State>& op);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // An engine is. From any thread, with any lock.
  void broken(const std::string& why);
  void leave();

 private:
  using State = Operation::State;

  // How many parts it has.
  [[nodiscard]] std::size_t parts_of(const State& op) const;
  // Why an operation cannot be started.
  [[nodiscard]] std::string reason_of(const Error& error) const;
  // Takes the word of the first rank that begins to hold with this operation.
  Status ask(Time until);
  [[nodiscard]] Result<ChannelsWord> hear(Time until) const;
  // Says the next word, if it is ours to say and this is the operation to do so.
  Status say_next(Time until);
  void measure(State& op);
  Status make_engines(std::size_t count, Time until);
  void divide(const std::shared_ptr<State>& op, std::size_t count);
  void part_over(State& op);

  ChannelsOptions options_;
  std::mutex order_;         // held while an operation is given to all engines
  std::size_t large_ = 0;    // with order_: operations so far, but for those over DLCP
  ChannelsWord word_{1, 1};  // with order_
  bool left_ = false;        // with order_
  // Of the first rank: the most that an operation moved since the last word, in bits a second.
  std::atomic<double> fastest_ = 0;
  std::mutex mutex_;  // guards what follows; taken with an engine's lock
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Engine>> engines_;
  std::string broken_;
};

// How many rank 0 says unless it is told: as many as a rank has cores, at most four.
[[nodiscard]] int usual_channels(int local_ranks);

}  // namespace thalweg
