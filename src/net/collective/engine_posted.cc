// What others leave for the engine's thread: operations, and words to break with.
#include <sys/eventfd.h>

#include <string>
#include <vector>

#include "net/collective/engine.h"

namespace thalweg {

void Engine::post(const std::shared_ptr<Op>& op) {
  {
    const std::lock_guard posted(posted_mutex_);
    if (!thread_over_) {
      set_times(*op);
      posted_.push_back(op);
      has_posted_ = true;
      eventfd_write(wake_.get(), 1);
      return;
    }
  }
  start(op);  // it is broken, and says how
}

void Engine::abandon(const std::string& why) {
  {
    const std::lock_guard posted(posted_mutex_);
    if (abandoned_.empty()) abandoned_ = why;
    has_posted_ = true;
  }
  eventfd_write(wake_.get(), 1);
}

void Engine::break_with(const std::string& why) {
  const Lock lock(mutex_);
  fail(kNoFrameRank, why);
  settle();
}

void Engine::take_abandoned() {
  if (!has_posted_) return;
  std::string why;
  {
    const std::lock_guard posted(posted_mutex_);
    why.swap(abandoned_);
    has_posted_ = !posted_.empty();
  }
  if (why.empty()) return;
  fail(kNoFrameRank, why);
  settle();
}

void Engine::take_posted(Lock& lock) {
  take_abandoned();
  if (!has_posted_) return;
  std::vector<std::shared_ptr<Op>> ops;
  {
    const std::lock_guard posted(posted_mutex_);
    ops.swap(posted_);
    has_posted_ = !abandoned_.empty();
  }
  for (const auto& op : ops) launch(op, lock);
}

}  // namespace thalweg
