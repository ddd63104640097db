#include "net/dlcp/test_faults.h"

#include <utility>

namespace thalweg::net {
namespace {

LosePacket& of_this_thread() {
  thread_local LosePacket lose;
  return lose;
}

}  // namespace

ScopedLoss::ScopedLoss(LosePacket lose)
    : before_(std::exchange(of_this_thread(), std::move(lose))) {}

ScopedLoss::~ScopedLoss() { of_this_thread() = std::move(before_); }

const LosePacket& installed_loss() { return of_this_thread(); }

}  // namespace thalweg::net
