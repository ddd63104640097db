// One direction between two ranks, as NCCL sees it: messages that arrive whole and in order, over
// several streams.
//
// A message is dealt in pieces (greeting.h) over the streams; a stream that is free takes the next
// piece. Stream 0 belongs to NCCL's thread, which advances it whenever it asks about a request:
// short messages travel there, without another thread on the way. The other streams belong to
// workers.
//
// Invariants:
// 1. Message n is in request n modulo kMaxInFlight, from its post until test() has told that it is
// done.
// 2. A request whose `left` is 0 is not touched by any stream.
// 3. After a failure nothing more is moved; every request that was not done reports it.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <thalweg/result.h>

#include "nccl/abi.h"
#include "nccl/greeting.h"
#include "nccl/worker.h"

namespace thalweg::nccl {

class Connection;

struct Request {
  Connection* connection = nullptr;
  std::byte* data = nullptr;
  std::size_t size = 0;  // of the message; of a receive before its first piece: of the buffer
  std::uint64_t message = 0;
  std::atomic<std::uint64_t> left = 0;  // bytes not moved yet; 1 for an empty message
  // The following are guarded by the connection's mutex.
  std::size_t begun = 0;  // bytes in pieces that a stream has taken
  bool posted = false;    // between post and test
  bool sized = false;     // of a receive: its first piece has come
  bool inlined = false;   // of a send: for stream 0 only
};

// What left goes down by when a piece has moved.
constexpr std::uint64_t weight_of(std::uint64_t bytes) { return bytes == 0 ? 1 : bytes; }

class Connection {
 public:
  struct Options {
    std::string peer;                  // for messages
    std::shared_ptr<WorkerPool> pool;  // null: NCCL's thread advances all streams
    std::size_t inline_bytes = 0;      // messages up to this size use stream 0 only
    std::size_t piece_bytes = 0;       // the least of a piece of a longer one
  };

  virtual ~Connection() = default;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Whether the request is done; if so, `size` is what was moved and the request is free again.
  [[nodiscard]] Result<bool> test(Request& request, std::size_t& size);

  // For the streams:
  void fail(Error error);
  [[nodiscard]] bool failed() const { return failed_.load(std::memory_order_acquire); }
  [[nodiscard]] const std::string& peer() const { return options_.peer; }

 protected:
  static constexpr std::size_t kMaxInFlight = 2 * kNcclMaxRequests;

  explicit Connection(Options options) : options_(std::move(options)) {}
  // Gives the streams to workers, the first excepted.
  void start();
  // Takes them back. The most derived destructor calls it, since streams see the whole object.
  void stop();
  // The request for the next message; null if it is not free yet. Requires the mutex.
  [[nodiscard]] Request* next_request();
  [[nodiscard]] Request& slot(std::uint64_t message) { return requests_[message % kMaxInFlight]; }
  // Advances the streams that belong to NCCL's thread.
  void drive();
  [[nodiscard]] Error failure();

  Options options_;
  std::vector<std::unique_ptr<Stream>> streams_;
  std::mutex mutex_;
  std::uint64_t posted_ = 0;  // messages; guarded by mutex_

 private:
  std::array<Request, kMaxInFlight> requests_;
  std::optional<Error> failure_;  // guarded by mutex_
  std::atomic<bool> failed_ = false;
};

class SendConnection final : public Connection {
 public:
  SendConnection(std::vector<net::Fd> streams, Options options);
  ~SendConnection() override { stop(); }

  // Null: too many are in flight; NCCL tries again.
  [[nodiscard]] Result<Request*> send(const void* data, std::size_t size);

 private:
  class Sender;
  struct Claim {
    Request* request = nullptr;
    Piece piece;
    bool help = false;  // NCCL's thread takes what workers could
  };
  // The next piece for this stream; none: the stream is idle until it is woken.
  std::optional<Claim> claim(Sender& sender);
  Request* next_inlined();
  Request* next_dealt();

  std::size_t workers_ = 0;     // streams that workers advance
  std::uint64_t inlined_ = 0;   // every inlined message before this one was claimed
  std::uint64_t dealt_ = 0;     // every other message before this one was claimed
  std::vector<Sender*> idle_;   // streams of workers that found nothing; guarded by mutex_
  std::vector<Sender*> woken_;  // of one send()
};

class ReceiveConnection final : public Connection {
 public:
  ReceiveConnection(std::vector<net::Fd> streams, Options options);
  ~ReceiveConnection() override { stop(); }

  // Null: too many are in flight; NCCL tries again.
  [[nodiscard]] Result<Request*> receive(void* data, std::size_t size);

 private:
  class Receiver;
  // The request that the piece is for; null: not posted yet, the stream waits until it is woken. An
  // error is of the other end.
  Result<Request*> take(const Piece& piece, Receiver& receiver);
  void on_end_of_stream();

  std::size_t open_ = 0;  // streams that have not ended; guarded by mutex_
  std::vector<Receiver*>
      early_;  // streams of workers whose piece is for no request yet; guarded by mutex_
  std::vector<Receiver*> woken_;  // of one receive()
};

}  // namespace thalweg::nccl
