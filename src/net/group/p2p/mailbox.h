// Mailbox: the point-to-point messages of one communicator on this rank.
//
// Messages have their own streams, one for each direction between two ranks, which the sender makes
// when it first sends. So a collective that waits never holds up a message, and a message never
// holds up a collective.
//
//   sender                           receiver
//   kMessage, with its bytes     →   kept until a receive matches; then   ← kTaken
//   kMessage, without            →   kept until a receive matches; then   ← kAccept
//   kData …                      →   into the tensor
//
// A small message carries its bytes, as long as no more than kEagerMessages of these wait at the
// receiver. The bytes of all others wait at the sender. So what a receiver keeps is bounded.
//
// Invariants:
// 1. Messages with one tag from one rank are received in the order in which they were sent.
// 2. Every operation ends once, by its deadline at the latest: the mailbox's thread checks
//    deadlines.
// 3. An operation's memory is touched only between its start and its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/auth/stream_key.h"
#include "net/group/operation/stream_operation.h"
#include "net/group/streams/connection.h"
#include "net/group/streams/stream_checks.h"
#include "net/io/fd.h"

namespace thalweg::net {

inline constexpr std::size_t kEagerBytes = wire::kMaxFrameText;
inline constexpr std::uint32_t kEagerMessages = 64;  // most that wait at the receiver from one rank
inline constexpr std::uint32_t kMostMessages = 4096;  // most to one rank that are not received yet

struct MailboxOptions {
  int rank = 0;
  int size = 1;
  std::uint64_t signature = 0;
  StreamChecks checks = StreamChecks::kBetweenHosts;  // as in EngineOptions
  std::function<void()> on_spoiled_frame = {};        // as in EngineOptions
  std::function<Result<DialedStream>(int rank, Time until)> connect;
  // Returns why the communicator is broken, so that messages fail; none: it is not broken.
  std::function<std::optional<Error>()> broken;
};

class Mailbox final : public OperationHost, private Connection::Handler {
 public:
  static Result<std::shared_ptr<Mailbox>> make(MailboxOptions options);
  ~Mailbox() override;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // Require that the operation has its memory, type, limit, tag and peer (kAnyPeer: receive from
  // any rank).
  void send(const std::shared_ptr<MessageOperation>& op);
  void receive(const std::shared_ptr<MessageOperation>& op);
  // Takes a stream that another rank made to send messages to this one.
  void adopt(int rank, CheckedStream stream);
  // Ends the operations in flight. Waits for nothing.
  void say_goodbye();
  // The same; then waits a moment until what was sent is with the other ranks' systems.
  void leave();

  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;

 private:
  using Op = MessageOperation;
  using Lock = std::unique_lock<std::mutex>;

  // A stream to or from a rank, and what the mailbox notes of it.
  struct Stream final : Connection {
    using Connection::Connection;
    struct Ready {
      Op* op;
      std::uint32_t send;
    };
    std::vector<Ready> ready;    // sends that have bytes to send
    std::uint32_t watching = 0;  // the epoll events
    bool dirty = false;          // it is to be flushed
  };

  // A message that arrived and that no receive matches yet.
  struct Letter {
    int source = 0;
    wire::Frame frame;
    std::string bytes;
  };

  Mailbox(MailboxOptions options, Fd epoll, Fd wake);

  // Connection::Handler.
  Streamed* on_data(Connection& connection, const wire::Frame& frame) override;
  void on_frame(Connection& connection, const wire::Frame& frame, const std::string& text) override;
  void on_progress(Streamed& streamed) override;
  void on_spoiled(Connection& connection) override;
  bool next_data(Connection& connection, wire::Frame& frame, Connection::Outgoing& out) override;

  // Matching.
  static bool fits(const Op& receive, const Letter& letter);
  void deliver(const std::shared_ptr<Op>& op, const Letter& letter);
  void accepted(Stream& connection, const wire::Frame& frame, const std::string& text);
  void start_executor(Op& op, bool sends);
  void finish(const std::shared_ptr<Op>& op, Status result);
  void finish_all(const Error& why);
  // The stream carries no messages any more: it has ended, or is spoiled.
  [[nodiscard]] static bool is_lost(const Connection& connection) {
    return !connection.over().empty() || !connection.spoiled().empty();
  }
  // Why.
  [[nodiscard]] Error lost(const Connection& connection) const;
  [[nodiscard]] bool is_outgoing(const Connection& connection) const;

  // Streams.
  Status connect_to(Lock& lock, const Op& op);
  void attach(Stream& connection, CheckedStream stream);
  void run_thread();
  void handle_events(int timeout_ms);
  void check_deadlines(Time now);
  void settle();
  void look_over(Stream& connection);
  void touch(Stream& connection);
  void watch(Stream& connection);
  void linger();
  [[nodiscard]] bool idle() const { return receives_.empty() && moving_.empty(); }

  MailboxOptions options_;
  Fd epoll_;
  Fd wake_;
  std::thread thread_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::optional<Error> broken_;
  std::vector<std::unique_ptr<Stream>> out_;  // [rank]: the stream to send to it
  std::vector<std::unique_ptr<Stream>> in_;   // [rank]: the stream to receive from it
  std::vector<std::uint32_t> sent_;           // [rank]: number of the last message to it
  std::vector<std::uint32_t> eager_;    // [rank]: messages sent with their bytes and not taken yet
  std::vector<std::uint32_t> offered_;  // [rank]: messages from it that no receive has taken
  std::vector<Stream*> dirty_;
  std::list<Letter> letters_;  // in the order of arrival
  // Receives that no letter matches yet, in the order of calls
  std::deque<std::shared_ptr<Op>> receives_;
  // Sends that were offered, and operations whose data moves
  std::vector<std::shared_ptr<Op>> moving_;
  std::map<const Connection*, Error> told_;  // why the peer ended the stream, in its words
  std::vector<std::byte> buffer_;
};

}  // namespace thalweg::net
