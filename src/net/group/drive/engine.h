// Engine: runs the operations of one communicator on this rank. The exchange (streams/exchange.h)
// moves what goes over streams, as the protocol decides; the engine owns the threads and says who
// drives.
//
// Who drives. One mutex guards all state. A thread that waits for an operation drives the engine:
// it reads and writes the streams itself, and polls for a while before it sleeps, so that no other
// thread has to be woken. Other threads that wait meanwhile sleep until the driver hands over. When
// no thread waits, the engine's own thread drives: it sleeps on the epoll of all streams, through a
// second epoll. Drivers switch that second one off, so that the thread is not woken for what they
// read; that takes a system call, which is needed only after a pause. An engine that works alone
// (channels.h) has its own thread drive as a waiting one would, and takes operations that other
// threads post.
//
// A driver that polls looks into shared memory. Before any thread sleeps on the epoll, all peers
// that share memory are asked for bells (connection.h), which come by the sockets.
//
// Invariants:
// 1. Every operation that was started ends once, by its deadline at the latest: the engine's thread
//    checks deadlines if no other thread drives.
// 2. An operation's memory is touched only between start() and its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/group/channels/inbox.h"
#include "net/group/dlcp/block_pool.h"
#include "net/group/dlcp/dlcp_operation.h"
#include "net/group/streams/exchange.h"
#include "net/io/fd.h"

namespace thalweg::net {

// A call, as ranks compare it.
struct CallInWords {
  std::uint32_t number = 0;
  std::uint64_t signature = 0;
  std::string text;
};

struct EngineOptions {
  StreamsOptions streams;
  // This host has more ranks than cores: a driver that waits lets others run.
  bool crowded = false;
  // How long a driver polls before it sleeps.
  Duration spin = Duration::microseconds(100);
  // Looks into the store, because ranks that wait for each other need not be connected: announces
  // that the communicator broke, or compares this rank's oldest call with the others'. Returns how
  // the communicator failed, if it did or if calls differ. The engine's thread calls it, from time
  // to time and without the mutex. Null: there is no store.
  std::function<std::optional<Error>(const std::optional<Error>& broken,
                                     const std::optional<CallInWords>& call)>
      consult;
  // A timeline is written: operations may have notes.
  bool notes_steps = false;
  // The engine's own thread does all the work, as a thread that waits for an operation would.
  bool works_alone = false;
  // Called when the communicator breaks, with the reason. The engine's mutex is held, so it must
  // only take note.
  std::function<void(const Error& why)> on_broken;
};

class Engine final : public OperationHost,
                     public DlcpOperation::Owner,
                     private Exchange::Owner,
                     public std::enable_shared_from_this<Engine> {
 public:
  using Op = PlannedOperation;

  // Takes listening, non-blocking sockets, to which higher ranks connect.
  static Result<std::shared_ptr<Engine>> make(EngineOptions options, std::vector<Fd> listeners);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts an operation with the next number. If that fails, the operation ends with the error. An
  // awaited operation may be over when this returns (at_once).
  void start(const std::shared_ptr<Op>& op);
  // The same, in the engine's thread, in the order of these calls. Never blocks.
  void post(const std::shared_ptr<Op>& op);
  // Both break the communicator, with this reason: break_with() at once, abandon() soon and without
  // ever blocking.
  void break_with(const Error& why);
  void abandon(const Error& why);
  // For operations that this engine only compares, when they are about to be late: asks all
  // connected ranks where they are, and breaks the communicator if one has said nothing since
  // (proto::Collective's roll call).
  void call_roll();
  void fail_missing(Duration limit);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // Tells the other ranks that this one leaves, and fails the operations in flight.
  void say_goodbye();
  // The same; then waits a moment until they know, and ends the thread.
  void leave();
  // Why no operation can be started any more; none while they can.
  [[nodiscard]] std::optional<Error> broken();

 private:
  using Lock = Streams::Lock;
  struct Descriptors {
    Fd streams;  // the epoll of all streams and the listeners
    Fd outer;    // watches `streams` and `wake`; the engine's thread sleeps on it
    Fd wake;
    Fd nudge;  // in `streams`; wakes a driver that sleeps
  };

  Engine(EngineOptions options, std::vector<Fd> listeners, Descriptors descriptors);

  // Exchange::Owner and DlcpOperation::Owner.
  void on_over(proto::CollectiveCall& call, Status status) override;
  void on_broken(const Error& why) override;
  void wake() override;
  void catch_up() override;
  [[nodiscard]] std::mutex& mutex() override { return mutex_; }
  void on_done(DlcpOperation& op) override;
  void on_lost(DlcpOperation& op, Rank rank, const Error& why) override;

  // Operations (engine.cc).
  // No other operation runs, and all its peers are reached through shared memory.
  [[nodiscard]] bool can_be_over_at_once(const Op& op) const;
  // Connects to the operation's peers, and begins it.
  void launch(const std::shared_ptr<Op>& op, Lock& lock);
  void begin(const std::shared_ptr<Op>& op);
  // Starts what was posted.
  void take_posted(Lock& lock);
  void consult(Lock& lock);
  void stop();
  // Waits until the other ranks have the last frames, or until it takes too long.
  void linger();

  // Driving (engine_drive.cc).
  // How a driver has polled so far.
  struct Pace {
    int looks = 0;       // polls in a row that found nothing
    unsigned moves = 0;  // polls that found something
    Time until;          // when to stop polling in vain
    bool yielded = false;
  };
  // Polls and sleeps until the operation is over. The caller holds the lock and has set driven_.
  void drive(Lock& lock, const Op& until);
  // Call after Exchange::poll(). False: there has been nothing to do for long enough. Lets others
  // run meanwhile.
  bool look_again(Lock& lock, Pace& pace, bool moved);
  // Polls, with the lock held, for as long as most small operations take.
  void look_first(const Op& op);
  // A driver that finds nothing lets others run at once.
  [[nodiscard]] bool is_crowded() const { return options_.crowded || core_is_shared_; }
  void sleep(Lock& lock, Time until);
  // Wakes a driver that sleeps: it may have something to do.
  void nudge();
  // arm() lets the engine's thread wake for events of the streams; disarm() keeps it from doing so.
  void arm();
  void disarm();
  [[nodiscard]] Time next_timer(Time now) const;
  void check_timers(Time now);
  // The engine's own thread.
  void run_thread();
  // The loop of an engine that works alone: returns when there has been nothing to do for a while.
  void work(Lock& lock);

  EngineOptions options_;
  const Fd outer_;
  const Fd wake_;
  const Fd nudge_;
  std::thread thread_;

  Inbox inbox_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool driven_ = false;                  // a thread that waits for an operation drives
  bool armed_ = false;                   // outer_ listens to the streams
  bool thread_sleeps_ = false;           // the engine's thread sleeps for longer than a pause
  std::optional<Time> thread_wakes_at_;  // it does so until then; none: until it is woken
  bool driver_sleeps_ = false;
  bool core_is_shared_ = false;  // another thread ran when a driver last yielded
  bool stopping_ = false;
  bool left_ = false;       // leave() was called
  Time linger_until_;       // set when stopping
  bool announced_ = false;  // the failure was announced, or need not be
  Time consult_at_;         // no comparison of calls before this
  Exchange exchange_;
  proto::Collective& core_;
  Streams& streams_;
  std::vector<std::shared_ptr<Op>> running_;  // ordered by number
  BlockPool blocks_;                          // for chunks over DLCP
};

}  // namespace thalweg::net
