// Engine: the operations of one communicator on this rank, and the streams to the other ranks.
//
// Who drives. All state has one mutex. A thread that waits for an operation drives: it reads and
// writes the streams itself, looks again for a while before it sleeps, and nobody has to be woken.
// Others that wait meanwhile sleep until the driver hands over. When nobody waits, the engine's own
// thread drives: it sleeps on the epoll of all streams, through a second one that the drivers
// switch off (a system call, and only after a pause), so that it is not woken for what they read.
// An engine that works alone (channels.h) has its thread drive as a waiting one would, and takes
// operations that others post.
//
// A driver that looks, looks into shared memory; before any thread sleeps on the epoll, all peers
// that share memory are asked for bells (connection.h), which come by the sockets.
//
// Order. Operations are numbered in the order of their calls, which is the same on all ranks. A
// frame of an operation that this rank has not started stalls its stream. That is safe, because a
// rank sends data of an operation only if it is the oldest one with data for that peer, or if the
// peer is known to have started it: behind a stalled frame there is nothing that an operation
// started here waits for.
//
// Failure. The first failure breaks the communicator: all operations fail with it, and all
// connected ranks are told, who tell theirs.
//
// Invariants:
// 1. Every operation that was started ends once, by its deadline if somebody drives, which the
//    engine's thread sees to.
// 2. An operation's memory is touched only between start() and its end.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/collective/block_pool.h"
#include "net/collective/connection.h"
#include "net/collective/cores.h"
#include "net/collective/operation.h"
#include "net/fd.h"
#include "net/stream_key.h"
#include "net/tcp_listener.h"

namespace thalweg {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  // Of job and group: both ends of a stream must say the same.
  std::uint64_t signature = 0;
  // Ranks on this host are more than its cores: a driver that waits lets others run.
  bool crowded = false;
  // How long a driver looks again before it sleeps.
  Duration spin = Duration::microseconds(100);
  // A thread that takes turns on a core with a lower rank of this host leaves it (cores.h).
  bool moves_apart = true;
  // With ranks of this host, memory is shared.
  bool share_memory = true;
  std::size_t ring_bytes = kRingBytes;
  // A connected stream to a lower rank, the first or a lane; blocks until the time at the latest.
  // From any thread.
  std::function<Result<DialedStream>(int rank, std::uint32_t lane, Time until)> connect;
  // What streams begin with, if ranks hold the job key; null: nothing.
  std::shared_ptr<StreamKey> key = {};
  // Ranks that wait for each other need not be connected. What follows goes by way of the store, a
  // second after an operation should have been over, from the engine's thread. None: not at all.
  //
  // Says what this rank calls as an operation, and asks what another does: how the communicator
  // failed, if it did or if the calls differ.
  std::function<std::optional<std::string>(std::uint32_t number, std::uint64_t signature,
                                           const std::string& text)>
      compare_calls;
  std::function<void(const std::string& text)> announce_failure;
  // Its own thread does all the work, as one that waits for an operation does.
  bool works_alone = false;
  // The communicator is broken, with these words. With the engine's mutex: it must only take note.
  std::function<void(const std::string& text)> on_broken;
  // Another rank, or this one, has made a stream of messages to us.
  std::function<void(int rank, Fd stream)> on_message_stream;
};

class Engine final : public OperationHost,
                     private Connection::Handler,
                     public std::enable_shared_from_this<Engine> {
 public:
  // Takes listening, non-blocking sockets, at which higher ranks connect.
  static Result<std::shared_ptr<Engine>> make(EngineOptions options, std::vector<Fd> listeners);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Takes the next number. A failure is the operation's. One that is awaited may be over, and says
  // so, when this returns.
  void start(const std::shared_ptr<Operation::State>& op);
  // The same, in the engine's thread, in the order of these calls. Never blocks.
  void post(const std::shared_ptr<Operation::State>& op);
  // Breaks it with these words: now, or soon and without ever blocking.
  void break_with(const std::string& why);
  void abandon(const std::string& why);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // Tells the others, and fails what is in flight.
  void say_goodbye();
  // The same, waits for a moment that they have it, and ends the thread.
  void leave();
  // Why no operation can be started any more; empty while they can.
  [[nodiscard]] std::string broken();

 private:
  using Op = Operation::State;
  using Lock = std::unique_lock<std::mutex>;

  Engine(EngineOptions options, std::vector<Fd> listeners, Fd epoll, Fd outer, Fd wake, Fd nudge);

  // Connection::Handler.
  Op* on_data(Connection& connection, const Frame& frame) override;
  void on_frame(Connection& connection, const Frame& frame, const std::string& text) override;
  void on_progress(Op& op) override;
  bool next_data(Connection& connection, Frame& frame, Connection::Outgoing& out) override;

  // Driving (engine_drive.cc).
  void drive(Lock& lock, const Op& until);
  void run_thread();
  // How a driver has looked so far.
  struct Pace {
    int looks = 0;       // in vain, one after the other
    unsigned moves = 0;  // looks that were not
    Time until;          // when it has looked in vain for long enough
    bool yielded = false;
  };
  // After a poll(): false if there has been nothing to do for long enough. Lets others run
  // meanwhile.
  bool look_again(Lock& lock, Pace& pace, bool moved);
  // Of a thread that works alone: until there has been nothing to do for a while.
  void work(Lock& lock);
  // What abandon() left; and what post() did.
  void take_abandoned();
  void take_posted(Lock& lock);
  // Reads and writes what can be without waiting. True: something happened.
  bool poll();
  // poll() would do nothing. Of what is not by shared memory it says no: that cannot be seen.
  [[nodiscard]] bool is_quiet() const;
  // A driver that finds nothing lets others run at once.
  [[nodiscard]] bool is_crowded() const { return options_.crowded || core_is_shared_; }
  // After several yields that others used: leaves the core to a lower rank of this host.
  void move_apart(Lock& lock);
  // Looks, without giving the lock away, as long as most small operations take.
  void look_first(const Op& op);
  void sleep(Lock& lock, Time until);
  // Reads one stream. True: something happened.
  bool read(Connection& connection);
  // Asks for bells on behalf of a thread that sleeps, or will. True: there is something to do.
  [[nodiscard]] bool prepare_sleep();
  void wake_up();
  // `moved`: it was read just now.
  void hang_up(Connection& connection, bool moved) const;
  bool handle_events(int timeout_ms);
  void settle();
  void look_over(Connection& connection);
  void watch(Connection& connection);
  void watch_lanes(Connection& connection);
  void arm();
  void disarm();
  [[nodiscard]] Time next_timer(Time now) const;
  void check_timers(Time now);
  // By way of the store, without the lock.
  void consult(Lock& lock);
  void stop();
  // Until the others have what they were told last, or it takes too long.
  void linger();
  // The driver may have to look again.
  void nudge();

  // Streams.
  // With its hello said.
  Result<DialedStream> dial(Lock& lock, Rank peer, std::uint32_t lane, Time until);
  Status connect_to(Lock& lock, const std::vector<Rank>& peers, Time until);
  Status connect_lanes(Lock& lock, Connection& connection, std::size_t streams, Time until);
  void adopt(Connection& connection, Fd fd);
  void adopt_lane(Connection& connection, std::uint32_t number, Fd fd,
                  const std::optional<SessionProof>& answer);
  [[nodiscard]] bool shares_memory(const Connection& connection) const;
  void offer_memory(Connection& connection);
  void take_offer(Connection& connection, const Frame& frame);
  void accept_streams(TcpListener& listener);
  void greet(std::size_t index);
  struct Newcomer;
  // Whether it holds the job key; it is then told that we do.
  [[nodiscard]] bool admit(const Newcomer& newcomer);
  [[nodiscard]] bool streams_missing();

  // Operations.
  // Its times, counted from now.
  static void set_times(Op& op);
  // Nothing is before it, and all it needs is in shared memory.
  [[nodiscard]] bool can_be_over_at_once(const Op& op) const;
  void launch(const std::shared_ptr<Op>& op, Lock& lock);
  void begin(const std::shared_ptr<Op>& op);
  void finish(Op& op, Status result);
  // Over DLCP (engine_dlcp.cc): transfers are started without the mutex, since they may be over at
  // once, and end in the endpoint's thread.
  static void expect_parts(Op& op);
  void start_dlcp(const std::shared_ptr<Op>& op);
  void send_dlcp(const std::shared_ptr<Op>& op, const std::vector<std::uint32_t>& sends);
  // `first`: of the part's elements.
  void on_dlcp_received(const std::shared_ptr<Op>& op, std::uint32_t slot, std::int64_t first,
                        const Result<TransferReport>& report);
  void on_dlcp_sent(const std::shared_ptr<Op>& op, std::uint32_t send,
                    const Result<TransferReport>& report);
  void look_at_dlcp(const std::shared_ptr<Op>& op, Lock& lock);
  void keep(const std::shared_ptr<Op>& op, const Transfer& transfer);
  void fail(std::uint32_t culprit, const std::string& text);
  // broken_ is how all operations end, and this frame how all streams do.
  void end_all(const Frame& last, const std::string& words);
  [[nodiscard]] Op* find(std::uint32_t number);
  // What this rank called as an operation, if that is known still.
  struct Called {
    bool known;
    std::uint64_t signature;
    const std::string& text;
  };
  // `op`: the operation, if it runs.
  [[nodiscard]] Called called_as(std::uint32_t number, const Op* op) const;
  void ask_peers(Op& op);
  void answer(Connection& connection, const Frame& frame, const std::string& theirs);
  void report_difference(Connection& connection, std::uint32_t number, const std::string& ours,
                         const std::string& theirs);
  [[nodiscard]] std::uint32_t waits_for(const Op& op) const;
  // Whom the operation waits for in the end, as far as is known.
  [[nodiscard]] std::uint32_t culprit_of(const Op& op) const;
  // We wait for it ourselves, and it does not say that it waits for another.
  [[nodiscard]] bool is_last_in_chain(const Op& op) const;
  [[nodiscard]] std::string late_text(const Op& op) const;
  [[nodiscard]] std::string not_called_text() const;
  void tell_stalled(Time now);
  void touch(Connection& connection);
  [[nodiscard]] static bool has_data_for(const Op& op, Rank peer);
  [[nodiscard]] static bool needs(const Op& op, Rank peer);
  // The peer has started it, or there is nothing before it that the peer waits for.
  [[nodiscard]] bool may_send(const Op& op, const Connection& connection) const;

  EngineOptions options_;
  // Streams that have not said whose they are; of more, the one that came first must go.
  static constexpr std::size_t kMaxNewcomers = 1024;
  std::vector<TcpListener> listeners_;  // one an interface
  Fd epoll_;                            // of all streams and the listeners
  Fd outer_;                            // of epoll_ and wake_: what the engine's thread sleeps on
  Fd wake_;
  Fd nudge_;  // in epoll_
  std::thread thread_;

  // What others left for the thread. Taken with any lock held, so nothing is called with it.
  std::mutex posted_mutex_;
  std::vector<std::shared_ptr<Op>> posted_;  // with posted_mutex_
  std::string abandoned_;                    // with posted_mutex_
  std::atomic<bool> has_posted_ = false;     // one of the two is not empty
  bool thread_over_ = false;                 // with posted_mutex_: nobody takes them any more

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool driven_ = false;         // by a thread that waits for an operation
  bool armed_ = false;          // outer_ listens to epoll_
  bool thread_sleeps_ = false;  // for longer than a pause
  bool driver_sleeps_ = false;
  bool core_is_shared_ = false;  // others had the core when a driver yielded last
  int turns_ = 0;                // yields in a row that others used
  Time move_at_;                 // to another core, not before
  bool stopping_ = false;
  bool left_ = false;       // the thread ends, or has
  Time linger_until_;       // once it stops
  bool announced_ = false;  // broken_, or it is not for us to do
  Time consult_at_;         // not before
  std::string broken_;
  std::vector<std::unique_ptr<Connection>> connections_;  // [rank]
  std::vector<Connection*> open_;                         // those connected
  std::vector<Connection*> dirty_;
  // Accepted, and their hello is not complete.
  struct Newcomer {
    Fd fd;
    std::array<std::byte, StreamKey::kOpeningSize + kFrameSize> bytes;  // the former with a key
    std::size_t size = 0;
    bool over = false;
  };
  std::deque<Newcomer> newcomers_;
  std::uint32_t started_ = 0;                 // the number of the last operation
  std::vector<std::shared_ptr<Op>> running_;  // by number
  // The last operations, for ranks that ask.
  struct Past {
    std::uint32_t number = 0;
    std::uint64_t signature = 0;
    std::string text;
  };
  static constexpr std::size_t kPast = 64;
  // Waiting for so long, or a quarter of the deadline, a rank asks whom it waits for.
  static constexpr Duration kAskAfter = Duration::milliseconds(1000);
  std::array<Past, kPast> past_;
  std::vector<std::unique_ptr<Executor>> spare_;  // executors to use again
  std::vector<std::byte> buffer_;
  BlockPool blocks_;  // of chunks over DLCP; operations hold the engine
};

}  // namespace thalweg
