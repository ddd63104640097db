#include "net/io/home_process.h"

#include <fmt/core.h>
#include <pthread.h>
#include <unistd.h>

#include <mutex>
#include <vector>

namespace thalweg::net {

std::atomic<std::uint64_t>& HomeProcess::forks() {
  static std::atomic<std::uint64_t> count = 0;
  return count;
}

HomeProcess::HomeProcess() : process_(getpid()) {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks().fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  generation_ = forks().load(std::memory_order_relaxed);
}

Status HomeProcess::check(const char* what) const {
  if (here()) return ok_status();
  return Error(
      fmt::format("{} was made in process {}, and this is process {}: make it anew after fork",
                  what, process_, getpid()));
}

void abandon(void* object) {
  static std::mutex mutex;
  // Never destroyed, so that checkers of leaks find what is abandoned until the very end.
  static auto* const kept = new std::vector<void*>();  // NOLINT(cppcoreguidelines-owning-memory)
  const std::lock_guard lock(mutex);
  kept->push_back(object);
}

}  // namespace thalweg::net
