// For programs that run until they are interrupted.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

namespace thalweg::launch {

// Ends the process by a signal that it has blocked and that has come meanwhile, if there is one.
// For programs that were told to stop and have removed what they made.
inline void end_by_blocked_signal() {
  sigset_t ends;
  sigemptyset(&ends);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&ends, signal);
  std::fflush(stdout);
  pthread_sigmask(SIG_UNBLOCK, &ends, nullptr);
}

// SIGINT and SIGTERM end the process as usual until started() is called, and from then on wait().
// Make it before there are other threads, so that all of them block the signals. A thread of its
// own takes them: the start of a program may wait for a long time (for the address of a host's
// name), and must end then, too.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&ends_);
    sigaddset(&ends_, SIGINT);
    sigaddset(&ends_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends_, nullptr);
    watcher_ = std::thread([this] { watch(); });
  }
  ~EndSignals() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    pthread_kill(watcher_.native_handle(), SIGTERM);
    watcher_.join();
  }
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  void started() {
    const std::lock_guard lock(mutex_);
    started_ = true;
  }
  // Returns when one of the signals has come since started(). Requires that this was called.
  void wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return came_; });
  }

 private:
  void watch() {
    while (true) {
      int signal = 0;
      sigwait(&ends_, &signal);
      const std::lock_guard lock(mutex_);
      if (over_) return;
      if (!started_) end_process(signal);
      came_ = true;
      changed_.notify_all();
    }
  }
  // Ends the process as the signal does when nobody blocks it.
  void end_process(int signal) const {
    pthread_sigmask(SIG_UNBLOCK, &ends_, nullptr);
    raise(signal);
  }

  sigset_t ends_ = {};
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool started_ = false;
  bool came_ = false;
  bool over_ = false;
  std::thread watcher_;
};

}  // namespace thalweg::launch
