// Who runs the shards of a network side by side. The simulator itself knows no threads: a crew of
// threads is in lab/sweep/thread_crew.h.
#pragma once

#include <cstddef>
#include <functional>

namespace thalweg::sim {

class Crew {
 public:
  Crew() = default;
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  virtual ~Crew() = default;

  // Calls task(0), …, task(count - 1), each once, and returns when all have returned. What one call
  // of run() did is visible to all tasks of the next.
  virtual void run(std::size_t count, const std::function<void(std::size_t)>& task) = 0;
};

}  // namespace thalweg::sim
