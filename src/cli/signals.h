// What programs that run until they are interrupted share.
#pragma once

#include <signal.h>

namespace thalweg {

// SIGINT and SIGTERM are for wait() and no longer end the process. To be made before there are
// threads, so that all of them leave the signals alone.
class EndSignals {
 public:
  EndSignals() {
    sigemptyset(&ends_);
    sigaddset(&ends_, SIGINT);
    sigaddset(&ends_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends_, nullptr);
  }
  void wait() const {
    int signal = 0;
    sigwait(&ends_, &signal);
  }

 private:
  sigset_t ends_;
};

}  // namespace thalweg
