// One thread's wait for sockets, times and work from other threads. It sleeps in the kernel until
// one of them is due, with nanosecond timeouts; it never polls.
//
// All methods but post() and stop() are for the thread in run(), or before it.
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
#include "net/fd.h"

namespace thalweg {

// Of two times at which a wait must end, where none means never.
inline std::optional<Time> earlier(std::optional<Time> a, std::optional<Time> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

class EventLoop {
 public:
  // Whom a descriptor's events are for. It must be removed before it dies.
  class Handler {
   public:
    virtual ~Handler() = default;
    // `events` of epoll. May come when there is nothing to read or write.
    virtual void on_ready(int fd, std::uint32_t events) = 0;
  };

  static Result<std::unique_ptr<EventLoop>> make();

  Status add(int fd, std::uint32_t events, Handler& handler);
  void change(int fd, std::uint32_t events);
  void remove(int fd);

  // Runs `work` in the loop, soon. From any thread. False, and it does not run: the loop is over.
  bool post(std::function<void()> work);
  // run() returns after the turn at hand, and after what was posted before. From any thread.
  void stop();

  // Until stop(). `turn` is called after every wait, and says when the next must end at the
  // latest; a time in the past means at once, none means not by itself.
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
  bool stopped_ = false;  // with mutex_
};

}  // namespace thalweg
