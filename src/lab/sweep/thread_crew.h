// A crew of threads that runs the shards of one simulation (sim/core/crew.h).
//
// Tasks follow one another within microseconds, so a thread that waits for the next looks for it in
// a loop for a short while before it sleeps. It sleeps at once if there are more threads than
// cores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include "sim/core/crew.h"

namespace thalweg::lab {

class ThreadCrew final : public sim::Crew {
 public:
  // `threads` is at least 1 and counts the caller of run(), who works too.
  explicit ThreadCrew(std::size_t threads);
  ~ThreadCrew() override;

  // Task i is always run by thread i modulo the number of threads. Must be called by one thread.
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override;

 private:
  void work(std::size_t thread);
  void do_tasks(std::size_t thread) const;

  const std::size_t size_;
  const int spins_;  // how often a thread looks before it sleeps
  // Set by run() before `round_` changes.
  std::size_t count_ = 0;
  const std::function<void(std::size_t)>* task_ = nullptr;
  bool over_ = false;
  std::atomic<std::uint32_t> round_{0};
  std::atomic<std::uint32_t> busy_{0};  // threads, without the caller, that are not done
  std::vector<std::thread> threads_;
};

}  // namespace thalweg::lab
