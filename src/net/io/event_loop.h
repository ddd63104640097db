// Lets one thread wait for sockets, for times and for work posted by other threads. It sleeps in
// the kernel (epoll, timeouts in nanoseconds) until one of them is due and never polls.
//
// Any thread may call post() and stop(). All other methods are for the thread in run(), or for any
// thread before run() is called.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include <thalweg/result.h>

#include "base/units.h"
#include "net/io/fd.h"

namespace thalweg::net {

// The earlier of two times, where none means never.
inline std::optional<Time> earlier(std::optional<Time> a, std::optional<Time> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

class EventLoop {
 public:
  // Receives the events of a descriptor. Its owner must remove() it before destroying it.
  class Handler {
   public:
    virtual ~Handler() = default;
    // `events`: epoll's bits. May be called when there is nothing to read or write.
    virtual void on_ready(int fd, std::uint32_t events) = 0;
  };

  static Result<std::unique_ptr<EventLoop>> make();

  Status add(int fd, std::uint32_t events, Handler& handler);
  void change(int fd, std::uint32_t events);
  void remove(int fd);

  // Lets the loop's thread run `work` soon. Any thread may call it. Returns false if the loop was
  // stopped; `work` then never runs.
  bool post(std::function<void()> work);
  // Makes run() return after the current turn and after all work posted before. Any thread may call
  // it.
  void stop();

  // Runs until stop(). Calls `turn` before every wait. `turn` returns the latest time at which that
  // wait must end: a time in the past means at once, none means no time limit.
  void run(const std::function<std::optional<Time>()>& turn);

 private:
  EventLoop(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {}
  void run_posted();
  void wait(std::optional<Time> until);

  Fd epoll_;
  Fd wake_;
  std::unordered_map<int, Handler*> handlers_;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  bool stopped_ = false;  // guarded by mutex_, as is posted_
};

}  // namespace thalweg::net
