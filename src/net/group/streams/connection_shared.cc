// The shared memory of a connection.
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/group/streams/connection.h"

namespace thalweg::net {
namespace {

// The most bytes of a ring that are read before other connections have their turn.
constexpr std::size_t kMostOfRing = std::size_t{64} << 10;

}  // namespace

void Connection::use_shared() {
  CHECK(shared_ != nullptr);
  queue({.kind = wire::FrameKind::kShared}, "");
}

bool Connection::read_shared(Handler& handler) {
  RingReader& ring = shared_->in();
  // If the socket's end was seen before this, the ring holds everything that the peer ever wrote.
  const std::span<const std::byte> bytes = ring.peek();
  if (ring.broken()) {
    break_off("it wrote nonsense into the shared memory");
    return true;
  }
  if (bytes.empty()) {
    if (!deaf()) return false;
    break_off(end_);
    return true;
  }
  ring.consume(feed(bytes.first(std::min(bytes.size(), kMostOfRing)), handler));
  if (ring.must_wake_writer()) ring_bell();
  return true;
}

void Connection::hear_bells(std::span<std::byte> buffer) {
  while (connected() && !deaf()) {
    const ssize_t got = recv(fd(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got > 0) continue;
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
    end_ = got == 0 ? "its connection closed" : std::generic_category().message(errno);
  }
}

// Before this side has sent kShared, a bell could be taken for a part of a frame. No bell is needed
// then, because that frame is still to come and wakes the peer as well. If the socket is full, it
// holds enough bells.
void Connection::ring_bell() const {
  if (!writes_shared_ || !connected()) return;
  const std::byte bell{};
  [[maybe_unused]] const ssize_t sent = send(fd(), &bell, 1, MSG_DONTWAIT | MSG_NOSIGNAL);
}

bool Connection::prepare_sleep() {
  if (!shared_ || !connected()) return false;
  if (reads_shared_ && !stalled_ && (shared_->in().prepare_sleep() || deaf())) return true;
  if (!writes_shared_ || !blocked_) return false;
  // A peer that has not sent kShared rings no bells, and what it sends instead may stall.
  return !reads_shared_ || shared_->out().prepare_sleep();
}

void Connection::wake_up() {
  if (!shared_) return;
  shared_->in().wake_up();
  shared_->out().wake_up();
}

}  // namespace thalweg::net
