// Mailbox: the point-to-point messages of one communicator on this rank.
//
// Messages have streams of their own, one for each direction between two ranks, made by the sender
// when it first sends: a collective that waits never holds up a message, nor the other way round.
//
//   sender                           receiver
//   kMessage, with its bytes     →   kept until a receive fits; then   ← kTaken
//   kMessage, without            →   kept until a receive fits; then   ← kAccept
//   kData …                      →   into the tensor
//
// Small messages go with their bytes, as long as no more than kEagerMessages of them wait at the
// receiver; all others wait at the sender. So what a receiver keeps is bounded.
//
// Invariants:
// 1. Of two messages with one tag from one rank, the first sent is the first received.
// 2. Every operation ends once, by its deadline at the latest: the mailbox's thread sees to it.
// 3. An operation's memory is touched only between its start and its end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/collective/connection.h"
#include "net/collective/operation.h"
#include "net/fd.h"
#include "net/stream_key.h"

namespace thalweg {

inline constexpr std::size_t kEagerBytes = kMaxFrameText;
inline constexpr std::uint32_t kEagerMessages = 64;   // from one rank, at the receiver
inline constexpr std::uint32_t kMostMessages = 4096;  // to one rank, not yet received

struct MailboxOptions {
  int rank = 0;
  int size = 1;
  std::uint64_t signature = 0;
  std::function<Result<DialedStream>(int rank, Time until)> connect;
  // Why the communicator is broken, and no message can come or go any more; empty if it is not.
  std::function<std::string()> broken;
};

class Mailbox final : public OperationHost, private Connection::Handler {
 public:
  static Result<std::shared_ptr<Mailbox>> make(MailboxOptions options);
  ~Mailbox() override;
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  // The operation has its memory, type and limit, its peer (kAnyPeer: a receive from any) and tag.
  void send(const std::shared_ptr<Operation::State>& op);
  void receive(const std::shared_ptr<Operation::State>& op);
  // A stream that another rank made to send by.
  void adopt(int rank, Fd stream);
  void leave();

  [[nodiscard]] Status wait(Operation::State& op) override;
  [[nodiscard]] bool over(const Operation::State& op) override;

 private:
  using Op = Operation::State;
  using Lock = std::unique_lock<std::mutex>;

  // Came, and no receive fits yet.
  struct Letter {
    int source = 0;
    Frame frame;
    std::string bytes;
  };

  Mailbox(MailboxOptions options, Fd epoll, Fd wake);

  // Connection::Handler.
  Op* on_data(Connection& connection, const Frame& frame) override;
  void on_frame(Connection& connection, const Frame& frame, const std::string& text) override;
  void on_progress(Op& op) override;
  bool next_data(Connection& connection, Frame& frame, Connection::Outgoing& out) override;

  // Matching.
  static bool fits(const Op& receive, const Letter& letter);
  void deliver(const std::shared_ptr<Op>& op, const Letter& letter);
  void accepted(Connection& connection, const Frame& frame, const std::string& text);
  void start_executor(Op& op, bool sends);
  void finish(const std::shared_ptr<Op>& op, Status result);
  void finish_all(const std::string& why);
  [[nodiscard]] bool is_outgoing(const Connection& connection) const;

  // Streams.
  Status connect_to(Lock& lock, const Op& op);
  void attach(Connection& connection, Fd stream);
  void run_thread();
  void handle_events(int timeout_ms);
  void check_deadlines(Time now);
  void settle();
  void look_over(Connection& connection);
  void touch(Connection& connection);
  void watch(Connection& connection);
  void linger();
  [[nodiscard]] bool idle() const { return receives_.empty() && moving_.empty(); }

  MailboxOptions options_;
  Fd epoll_;
  Fd wake_;
  std::thread thread_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool stopping_ = false;
  std::string broken_;
  std::vector<std::unique_ptr<Connection>> out_;  // [rank]: by which we send
  std::vector<std::unique_ptr<Connection>> in_;   // [rank]: by which we receive
  std::vector<std::uint32_t> sent_;               // [rank]: number of the last message to it
  std::vector<std::uint32_t> eager_;              // [rank]: that went with their bytes, not taken
  std::vector<std::uint32_t> offered_;            // [rank]: letters from it
  std::vector<Connection*> dirty_;
  std::list<Letter> letters_;                 // in the order they came
  std::deque<std::shared_ptr<Op>> receives_;  // that no letter fits yet, in the order of calls
  std::vector<std::shared_ptr<Op>> moving_;   // with a stream: offered, or with data on the way
  std::vector<std::byte> buffer_;
};

}  // namespace thalweg
