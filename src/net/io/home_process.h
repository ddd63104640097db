// HomeProcess: which process an object was made in.
//
// fork() copies an object into the child, but not the threads that serve it, and both processes
// then share its sockets and its shared memory. If the child used or destroyed its copy, it would
// speak in its parent's name. So objects with sockets or threads have a HomeProcess, and ask it
// first.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include <thalweg/result.h>

namespace thalweg::net {

class HomeProcess {
 public:
  HomeProcess();  // this process

  // Costs no system call.
  [[nodiscard]] bool here() const { return generation_ == forks().load(std::memory_order_relaxed); }
  // An error, if this is another process. `what`: "the communicator".
  [[nodiscard]] Status check(const char* what) const;

 private:
  // How many times this process's forefathers have forked until it came into being.
  static std::atomic<std::uint64_t>& forks();

  std::uint64_t generation_;
  pid_t process_;
};

// Keeps the memory until the process ends, and calls no destructor.
void abandon(void* object);

// To be called before the object is destroyed. In another process than the one that the object was
// made in, it is abandoned, so that no destructor touches what belongs to that process.
template <class T>
void abandon_unless_home(std::unique_ptr<T>& object) {
  if (object && !object->home().here()) abandon(object.release());
}

}  // namespace thalweg::net
