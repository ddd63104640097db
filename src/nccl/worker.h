// Threads that move the bytes of streams, beside NCCL's own thread, which has a GPU to watch.
//
// A worker owns an event loop; every stream that is attached to it is touched by its thread only,
// until detach() has returned.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/event_loop.h"
#include "net/io/fd.h"

namespace thalweg::nccl {

class Worker;

// Bytes after which a stream lets others of its worker have their turn.
inline constexpr std::size_t kBytesOfTurn = 1 << 20;

// One TCP connection of a connection, in one direction.
class Stream : public net::EventLoop::Handler {
 public:
  // What advance() left: nothing can be done until the socket is ready or a request is posted, or
  // there is more to do.
  enum class Progress : std::uint8_t { kWaiting, kMore };

  explicit Stream(net::Fd fd) : fd_(std::move(fd)) {}
  // Moves bytes until it would have to wait, or for long enough that others should have their turn.
  virtual Progress advance() = 0;
  // The worker cannot watch the socket.
  virtual void on_refused(const Error& error) = 0;
  // The events to watch for (epoll's bits).
  [[nodiscard]] virtual std::uint32_t events() const = 0;
  void on_ready(int fd, std::uint32_t events) final;

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] Worker* worker() const { return worker_; }

 protected:
  // The other end has closed the stream, or it is broken; bytes may still be there to read.
  [[nodiscard]] bool hung_up() const { return hung_up_; }

 private:
  friend class Worker;
  net::Fd fd_;
  Worker* worker_ = nullptr;  // null: NCCL's thread advances this stream
  bool hung_up_ = false;
  bool queued_ = false;
};

class Worker {
 public:
  // `spin`: how long the thread looks again and again after its last work before it sleeps.
  [[nodiscard]] static Result<std::unique_ptr<Worker>> start(Duration spin);
  // Requires that no stream is attached.
  ~Worker();

  // For any thread but the worker's own:
  void attach(Stream& stream);
  // Returns when the worker will not touch the stream again.
  void detach(Stream& stream);
  // Lets the worker advance an attached stream soon.
  void wake(Stream& stream);

 private:
  friend class Stream;
  Worker(std::unique_ptr<net::EventLoop> loop, Duration spin)
      : loop_(std::move(loop)), spin_(spin) {}
  void queue(Stream& stream);
  std::optional<Time> turn();

  std::unique_ptr<net::EventLoop> loop_;
  Duration spin_;
  std::vector<Stream*> ready_;     // to advance in the next turn
  std::vector<Stream*> advanced_;  // those of this turn
  Time last_work_;
  std::thread thread_;
};

// The workers of this process. They run as long as a connection holds the pool.
class WorkerPool {
 public:
  // Returns the pool that there is, or starts one of `count` workers; null if that is 0.
  [[nodiscard]] static Result<std::shared_ptr<WorkerPool>> share(int count, Duration spin);
  // The workers take streams in turn.
  Worker& next() { return *workers_[next_.fetch_add(1) % workers_.size()]; }

 private:
  std::vector<std::unique_ptr<Worker>> workers_;
  std::atomic<std::size_t> next_ = 0;
};

}  // namespace thalweg::nccl
