// Engine: runs the operations of one communicator on this rank, over the streams to the other
// ranks.
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
// What the ranks say to each other, in which order data moves, who is blamed and when an operation
// fails is decided by proto::Collective. The engine moves bytes between its streams and the memory
// of operations, and tells it what happened.
//
// Invariants:
// 1. Every operation that was started ends once, by its deadline at the latest: the engine's thread
//    checks deadlines if no other thread drives.
// 2. An operation's memory is touched only between start() and its end.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/stream_key.h"
#include "net/group/dlcp/block_pool.h"
#include "net/group/drive/operation.h"
#include "net/group/streams/connection.h"
#include "net/group/streams/stream_checks.h"
#include "net/io/fd.h"
#include "net/io/tcp_listener.h"
#include "net/job/debug_log.h"
#include "proto/collective/collective.h"

namespace thalweg::net {

struct EngineOptions {
  int rank = 0;
  int size = 1;
  // Identifies job and group. Both ends of a stream must send the same.
  std::uint64_t signature = 0;
  // This host has more ranks than cores: a driver that waits lets others run.
  bool crowded = false;
  // How long a driver polls before it sleeps.
  Duration spin = Duration::microseconds(100);
  // Share memory with ranks of this host.
  bool share_memory = true;
  std::size_t ring_bytes = kRingBytes;
  // Connects the first stream or a lane to a lower rank; blocks until `until` at the latest. Any
  // thread may call it. An error blames the rank if the rank is the cause.
  std::function<Result<DialedStream>(int rank, std::uint32_t lane, Time until)> connect;
  // The ranks listened before this one knew their addresses: one that refuses a stream is gone.
  bool refusals_are_final = false;
  // Which streams have checksums, unless they are sealed. Both ends of a stream must want the same.
  StreamChecks checks = StreamChecks::kBetweenHosts;
  // Rate of this host's link, to which streams to other hosts keep; 0: what the interface says.
  std::int64_t line_bps = 0;
  // Authenticates the beginning of streams if ranks hold the job key, and says whether they are
  // sealed. Null: there is no key.
  std::shared_ptr<StreamKey> key = {};
  // The next two calls go through the store, because ranks that wait for each other need not be
  // connected. The engine's thread makes them, a second after an operation should have been over.
  // Null: it makes none.
  //
  // Publishes this rank's call and compares it with another rank's. Returns how the communicator
  // failed, if it did or if the calls differ.
  std::function<std::optional<Error>(std::uint32_t number, std::uint64_t signature,
                                     const std::string& text)>
      compare_calls;
  std::function<void(const Error& why)> announce_failure;
  DebugLog log;
  // A timeline is written: operations may have notes.
  bool notes_steps = false;
  // The engine's own thread does all the work, as a thread that waits for an operation would.
  bool works_alone = false;
  // Called when the communicator breaks, with the reason. The engine's mutex is held, so it must
  // only take note.
  std::function<void(const Error& why)> on_broken;
  // Called when a frame changed on its way, in the same manner.
  std::function<void()> on_spoiled_frame;
  // Called when a stream goes on over another TCP connection, in the same manner.
  std::function<void()> on_moved_stream;
  // Called when another rank, or this one, has connected a stream for messages to this rank.
  std::function<void(int rank, CheckedStream stream)> on_message_stream;
};

class Engine final : public OperationHost,
                     private Connection::Handler,
                     public std::enable_shared_from_this<Engine> {
 public:
  // Takes listening, non-blocking sockets, to which higher ranks connect.
  static Result<std::shared_ptr<Engine>> make(EngineOptions options, std::vector<Fd> listeners);
  ~Engine() override;
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Starts an operation with the next number. If that fails, the operation ends with the error. An
  // awaited operation may be over when this returns (at_once).
  void start(const std::shared_ptr<Operation::State>& op);
  // The same, in the engine's thread, in the order of these calls. Never blocks.
  void post(const std::shared_ptr<Operation::State>& op);
  // Both break the communicator, with this reason: break_with() at once, abandon() soon and without
  // ever blocking.
  void break_with(const Error& why);
  void abandon(const Error& why);
  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;
  // Tells the other ranks that this one leaves, and fails the operations in flight.
  void say_goodbye();
  // The same; then waits a moment until they know, and ends the thread.
  void leave();
  // Why no operation can be started any more; none while they can.
  [[nodiscard]] std::optional<Error> broken();

 private:
  using Op = Operation::State;
  using Lock = std::unique_lock<std::mutex>;

  Engine(EngineOptions options, std::vector<Fd> listeners, Fd epoll, Fd outer, Fd wake, Fd nudge);

  // Connection::Handler.
  Op* on_data(Connection& connection, const wire::Frame& frame) override;
  void on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) override;
  void on_progress(Op& op) override;
  void on_spoiled(Connection& connection) override;
  bool next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) override;

  // Driving (engine_drive.cc).
  // Polls and sleeps until the operation is over. The caller holds the lock and has set driven_.
  void drive(Lock& lock, const Op& until);
  // The engine's own thread.
  void run_thread();
  // How a driver has polled so far.
  struct Pace {
    int looks = 0;       // polls in a row that found nothing
    unsigned moves = 0;  // polls that found something
    Time until;          // when to stop polling in vain
    bool yielded = false;
  };
  // Call after a poll(). False: there has been nothing to do for long enough. Lets others run
  // meanwhile.
  bool look_again(Lock& lock, Pace& pace, bool moved);
  // The loop of an engine that works alone: returns when there has been nothing to do for a while.
  void work(Lock& lock);
  // Takes what abandon() and post() left.
  void take_abandoned();
  void take_posted(Lock& lock);
  // Reads and writes as much as is possible without waiting. True: something happened.
  bool poll();
  // The same for the stream that the operation waits for, if it runs alone.
  bool poll_awaited(const Op& op);
  // True: poll() would do nothing. False for every connection without shared memory, because its
  // socket cannot be looked at cheaply.
  [[nodiscard]] bool is_quiet() const;
  // A driver that finds nothing lets others run at once.
  [[nodiscard]] bool is_crowded() const { return options_.crowded || core_is_shared_; }
  // Polls, with the lock held, for as long as most small operations take.
  void look_first(const Op& op);
  void sleep(Lock& lock, Time until);
  // Reads one connection. True: something happened.
  bool read(Connection& connection);
  // Asks all peers for bells, before a thread sleeps. True: there is something to do already.
  [[nodiscard]] bool prepare_sleep();
  void wake_up();
  // The peer has ended. Breaks the connection off once nothing more arrives. `moved`: something was
  // read just now.
  void hang_up(Connection& connection, bool moved);
  bool handle_events(int timeout_ms);
  // Does what the protocol wants: sends its frames, flushes the dirty connections, ends operations.
  void settle();
  // Tells the protocol if the connection is over.
  void look_over(Connection& connection);
  // Tell epoll which events of the connection's sockets are wanted now.
  void watch(Connection& connection);
  void watch_lanes(Connection& connection);
  // arm() lets the engine's thread wake for events of epoll_; disarm() keeps it from doing so.
  void arm();
  void disarm();
  [[nodiscard]] Time next_timer(Time now) const;
  void check_timers(Time now);
  // Uses the store, without the lock: announces a failure, or compares calls.
  void consult(Lock& lock);
  void stop();
  // Waits until the other ranks have the last frames, or until it takes too long.
  void linger();
  // Wakes a driver that sleeps: it may have something to do.
  void nudge();

  // Streams.
  // Returns a stream on which the hello was sent.
  Result<GreetedStream> dial(Lock& lock, Rank peer, std::uint32_t lane, Time until);
  Status connect_to(Lock& lock, const std::vector<Rank>& peers, Time until);
  // Makes the connection with a stream that was dialed.
  Status take_stream(Lock& lock, Connection& connection, GreetedStream& stream, Time until);
  Status connect_lanes(Lock& lock, Connection& connection, std::size_t streams,
                       std::uint32_t first_way, Time until);
  void adopt(Connection& connection, CheckedStream stream);
  void adopt_lane(Connection& connection, std::uint32_t number, Fd fd,
                  const std::optional<wire::SessionProof>& answer);
  [[nodiscard]] bool shares_memory(const Connection& connection) const;
  void offer_memory(Connection& connection);
  void take_offer(Connection& connection, const wire::Frame& frame);
  void accept_streams(TcpListener& listener);
  void greet(std::size_t index);
  struct Newcomer;
  // Reads the opening and the hello of a stream, and nothing beyond. True: it has both.
  [[nodiscard]] bool read_first(Newcomer& newcomer);
  // Whether the newcomer holds the job key. If so, it is sent the proof that this rank does.
  [[nodiscard]] bool admit(Newcomer& newcomer);
  // None: it is not the hello of a rank. If it changed on its way, the other end is told.
  [[nodiscard]] std::optional<wire::Frame> hello_of(Newcomer& newcomer) const;
  // How this rank checks the frames of a stream.
  [[nodiscard]] wire::FrameCheck own_check(int fd) const;
  // The hello of another rank, or of a stranger.
  [[nodiscard]] bool is_hello(const wire::Frame& frame) const;
  // The error if the hello says another check than this rank has for the stream, `own`.
  [[nodiscard]] std::optional<Error> mismatch_of(const wire::Frame& hello,
                                                 wire::FrameCheck own) const;
  // Sends a last frame on a stream that is closed then. `seal`: set if `check` is kSealed.
  void refuse(int fd, wire::FrameCheck check, wire::StreamSeal* seal, const Error& why) const;
  [[nodiscard]] bool streams_missing();
  // The hello of a stream that this rank makes.
  [[nodiscard]] wire::Frame hello_for(std::uint32_t what, std::uint32_t number) const;

  // Streams that move to another path (engine_moves.cc).
  struct Move {
    Rank peer;
    std::uint32_t stream;
    std::uint32_t way;
  };
  // When look_at_streams() is to be called.
  [[nodiscard]] std::optional<Time> next_look() const;
  // Has a stream moved whose path is dead, or whose own path may be back.
  void look_at_streams(Time now);
  void look_at_stream(Connection& connection, std::uint32_t stream, Time now);
  // The thread that moves streams.
  void run_mover();
  void carry_out(Lock& lock, Move move);
  // The stream goes on by another connection.
  void go_on_by(Connection& connection, std::uint32_t stream, Fd fd, std::uint64_t theirs);
  // The other end moves a stream: its hello has come; it confirms; it does not.
  void begin_move(Newcomer& newcomer, Connection& connection, std::uint32_t stream);
  void end_move(Newcomer& newcomer);
  void give_up_move(Newcomer& newcomer);

  // Operations.
  // No other operation runs, and all its peers are reached through shared memory.
  [[nodiscard]] bool can_be_over_at_once(const Op& op) const;
  // Connects to the operation's peers, and begins it.
  void launch(const std::shared_ptr<Op>& op, Lock& lock);
  // Numbers the operation and starts its executor.
  void begin(const std::shared_ptr<Op>& op);
  // The first time that the communicator is found broken: says so, and lets go of all data.
  void notice_break();
  void drop_data();
  void send_control();
  // Ends the operations that the protocol says are over.
  void end_over();
  // Ends the operation and takes it off running_. Its last steps run only if it succeeded.
  void finish(Op& op, Status result);
  // Over DLCP (engine_dlcp.cc). Transfers are started without the mutex, since they may be over at
  // once, and they end in the endpoint's thread.
  static void expect_parts(Op& op);
  void start_dlcp(const std::shared_ptr<Op>& op);
  void send_dlcp(const std::shared_ptr<Op>& op, const std::vector<std::uint32_t>& sends);
  // `first`: index of the part's first element in the chunk.
  void on_dlcp_received(const std::shared_ptr<Op>& op, std::uint32_t slot, std::int64_t first,
                        const Result<TransferReport>& report);
  void on_dlcp_sent(const std::shared_ptr<Op>& op, std::uint32_t send,
                    const Result<TransferReport>& report);
  // A transfer "from" or "to" a rank has failed.
  void lose_transfer(Op& op, const Error& error, const char* way, Rank rank);
  // Starts the sends that are ready, and finishes the operation if it is done. Unlocks `lock`.
  void look_at_dlcp(const std::shared_ptr<Op>& op, Lock& lock);
  // Notes a transfer of the operation, to cancel it if the operation fails.
  void keep(const std::shared_ptr<Op>& op, const Transfer& transfer);
  // Notes for the timeline (engine_steps.cc). The last two require that the operation has notes.
  void note_stall(Rank peer);
  void note_resumed(Op& op, Rank peer);
  static void note_transfer(Op& op, bool sends, std::uint32_t index, const TransferReport& report);
  void note_end(Op& op);
  // Marks the connection as dirty: settle() flushes it.
  void touch(Connection& connection);

  EngineOptions options_;
  // The most streams that have not said whose they are. When there are more, the oldest is dropped.
  static constexpr std::size_t kMaxNewcomers = 1024;
  std::vector<TcpListener> listeners_;  // one per interface
  Fd epoll_;                            // watches all streams and the listeners
  Fd outer_;  // watches epoll_ and wake_; the engine's thread sleeps on it
  Fd wake_;
  Fd nudge_;  // in epoll_; wakes a driver that sleeps
  std::thread thread_;

  // What other threads left for the engine's thread. Threads take posted_mutex_ while they hold any
  // other lock, so nothing is called while it is held.
  std::mutex posted_mutex_;
  std::vector<std::shared_ptr<Op>> posted_;  // guarded by posted_mutex_
  std::optional<Error> abandoned_;           // guarded by posted_mutex_
  std::atomic<bool> has_posted_ = false;     // one of the two above is not empty
  bool thread_over_ = false;  // guarded by posted_mutex_: the thread takes nothing more

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool driven_ = false;         // a thread that waits for an operation drives
  bool armed_ = false;          // outer_ listens to epoll_
  bool thread_sleeps_ = false;  // the engine's thread sleeps for longer than a pause
  bool driver_sleeps_ = false;
  bool core_is_shared_ = false;  // another thread ran when a driver last yielded
  bool stopping_ = false;
  bool left_ = false;       // leave() was called
  Time linger_until_;       // set when stopping
  bool announced_ = false;  // the failure was announced, or need not be
  Time consult_at_;         // no comparison of calls before this
  proto::Collective core_;
  bool noticed_ = false;  // notice_break() has seen that core_ is broken
  std::vector<std::unique_ptr<Connection>> connections_;  // [rank]
  std::vector<Connection*> open_;                         // the connected ones
  std::vector<Connection*> dirty_;
  // Streams that were accepted and whose hello is not complete.
  struct Newcomer {
    Fd fd;
    // kOpeningSize bytes only with a key, and a hello with checksums or sealed.
    std::array<std::byte, StreamKey::kOpeningSize + wire::kSealedFrameSize> bytes = {};
    std::size_t size = 0;
    bool over = false;
    std::unique_ptr<wire::StreamSeal> seal = {};  // as the opening says
    // Set after its hello, if this is a stream that moves.
    std::optional<std::pair<Connection*, std::uint32_t>> moves = {};
  };
  std::deque<Newcomer> newcomers_;
  std::optional<Move> move_;  // what the mover does
  std::condition_variable move_wanted_;
  std::thread mover_;                         // started when it is first needed
  Time look_at_;                              // no look at the streams before this
  std::vector<std::pair<Fd, Time>> retired_;  // old sockets of streams that moved, and when
  std::vector<std::shared_ptr<Op>> running_;  // ordered by number
  std::vector<std::unique_ptr<exec::Executor>> spare_;  // executors that can be used again
  std::vector<std::byte> buffer_;
  BlockPool blocks_;  // for chunks over DLCP
  // For the timeline: ranks whose data waits for a call of this rank, and what the kernel has sent
  // again to each rank as of the last operation.
  std::map<Rank, Time> stalled_since_;
  std::vector<std::int64_t> sent_again_;  // [rank]
};

}  // namespace thalweg::net
