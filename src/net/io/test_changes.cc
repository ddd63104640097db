#include "net/io/test_changes.h"

#include <utility>

namespace thalweg::net {
namespace {

ChangePacket& changes_of_this_thread() {
  thread_local ChangePacket change;
  return change;
}

}  // namespace

ScopedChanges::ScopedChanges(ChangePacket change)
    : before_(std::exchange(changes_of_this_thread(), std::move(change))) {}

ScopedChanges::~ScopedChanges() { changes_of_this_thread() = std::move(before_); }

const ChangePacket& installed_changes() { return changes_of_this_thread(); }

}  // namespace thalweg::net
