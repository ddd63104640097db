// A lock for a few instructions, for layers that know no threads. Meets the standard's Lockable, so
// std::scoped_lock takes it.
#pragma once

#include <atomic>

namespace thalweg {

class SpinLock {
 public:
  void lock() {
    while (taken_.test_and_set(std::memory_order_acquire)) {
      while (taken_.test(std::memory_order_relaxed)) {
      }
    }
  }
  bool try_lock() { return !taken_.test_and_set(std::memory_order_acquire); }
  void unlock() { taken_.clear(std::memory_order_release); }

 private:
  std::atomic_flag taken_;
};

}  // namespace thalweg
