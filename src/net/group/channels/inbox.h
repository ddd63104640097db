// Inbox: what other threads leave for the thread of an engine: operations to start, and a reason to
// break the communicator. Threads use it while they hold any other lock, and it calls nothing.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include <thalweg/result.h>

#include "net/group/operation/planned_operation.h"

namespace thalweg::net {

class Inbox {
 public:
  using Operations = std::vector<std::shared_ptr<PlannedOperation>>;

  // False: it is closed, and takes no operations any more.
  bool put(const std::shared_ptr<PlannedOperation>& op) {
    const std::lock_guard lock(mutex_);
    if (closed_) return false;
    operations_.push_back(op);
    full_ = true;
    return true;
  }
  // The first reason counts.
  void put(const Error& reason) {
    const std::lock_guard lock(mutex_);
    if (!reason_) reason_ = reason;
    full_ = true;
  }

  [[nodiscard]] Operations take_operations() {
    if (!full_) return {};
    const std::lock_guard lock(mutex_);
    full_ = reason_.has_value();
    return std::exchange(operations_, {});
  }
  [[nodiscard]] std::optional<Error> take_reason() {
    if (!full_) return std::nullopt;
    const std::lock_guard lock(mutex_);
    full_ = !operations_.empty();
    return std::exchange(reason_, std::nullopt);
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }

 private:
  std::mutex mutex_;
  Operations operations_;
  std::optional<Error> reason_;
  bool closed_ = false;
  std::atomic<bool> full_ = false;  // something is in it
};

}  // namespace thalweg::net
