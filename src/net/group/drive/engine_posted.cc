// What other threads leave for the engine's thread: operations to start, and a reason to break the
// communicator.
#include <sys/eventfd.h>

#include <optional>
#include <vector>

#include "net/group/drive/engine.h"
#include "net/io/system.h"

namespace thalweg::net {

void Engine::post(const std::shared_ptr<Op>& op) {
  {
    const std::lock_guard posted(posted_mutex_);
    if (!thread_over_) {
      op->set_times(monotonic_now());
      posted_.push_back(op);
      has_posted_ = true;
      eventfd_write(wake_.get(), 1);
      return;
    }
  }
  start(op);  // the engine is broken: the operation ends with the reason
}

void Engine::abandon(const Error& why) {
  {
    const std::lock_guard posted(posted_mutex_);
    if (!abandoned_) abandoned_ = why;
    has_posted_ = true;
  }
  eventfd_write(wake_.get(), 1);
}

void Engine::break_with(const Error& why) {
  const Lock lock(mutex_);
  core_.fail(why);
  settle();
}

void Engine::take_abandoned() {
  if (!has_posted_) return;
  std::optional<Error> why;
  {
    const std::lock_guard posted(posted_mutex_);
    why.swap(abandoned_);
    has_posted_ = !posted_.empty();
  }
  if (!why) return;
  core_.fail(*why);
  settle();
}

void Engine::take_posted(Lock& lock) {
  take_abandoned();
  if (!has_posted_) return;
  std::vector<std::shared_ptr<Op>> ops;
  {
    const std::lock_guard posted(posted_mutex_);
    ops.swap(posted_);
    has_posted_ = abandoned_.has_value();
  }
  for (const auto& op : ops) launch(op, lock);
}

}  // namespace thalweg::net
