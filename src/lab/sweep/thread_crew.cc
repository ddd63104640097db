#include "lab/sweep/thread_crew.h"

#include "base/check.h"

namespace thalweg::lab {
namespace {

constexpr int kSpins = 2000;  // some tens of microseconds

// Returns when the value is no longer `old`.
void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old, int spins) {
  for (int i = 0; i < spins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadCrew::ThreadCrew(std::size_t threads)
    : size_(threads), spins_(threads <= std::thread::hardware_concurrency() ? kSpins : 0) {
  CHECK(threads >= 1);
  for (std::size_t t = 1; t < threads; ++t) {
    threads_.emplace_back([this, t] { work(t); });
  }
}

ThreadCrew::~ThreadCrew() {
  over_ = true;
  ++round_;
  round_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void ThreadCrew::run(std::size_t count, const std::function<void(std::size_t)>& task) {
  count_ = count;
  task_ = &task;
  busy_ = static_cast<std::uint32_t>(threads_.size());
  ++round_;
  round_.notify_all();
  do_tasks(0);
  for (std::uint32_t busy = busy_; busy != 0; busy = busy_) wait_while(busy_, busy, spins_);
}

void ThreadCrew::work(std::size_t thread) {
  for (std::uint32_t round = 0;; ++round) {
    wait_while(round_, round, spins_);
    if (over_) return;
    do_tasks(thread);
    if (--busy_ == 0) busy_.notify_one();
  }
}

void ThreadCrew::do_tasks(std::size_t thread) const {
  for (std::size_t i = thread; i < count_; i += size_) (*task_)(i);
}

}  // namespace thalweg::lab
