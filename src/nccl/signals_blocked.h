// Keeps the host program's signals away from the plugin's threads.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace thalweg::nccl {

// The host program's signals are not for our threads. While this lives, threads that start take
// none.
class SignalsBlocked {
 public:
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  SignalsBlocked(const SignalsBlocked&) = delete;
  SignalsBlocked& operator=(const SignalsBlocked&) = delete;
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_ = {};
};

}  // namespace thalweg::nccl
