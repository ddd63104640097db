// Streams of a connection with lanes that go on over other TCP connections (stream_bytes.h).
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/group/streams/connection.h"

namespace thalweg::net {
namespace {

// What the system says of a path that carries nothing. Everything else is said by the peer's
// system, or by this one because of the peer.
bool is_of_path(int error) {
  return error == ETIMEDOUT || error == EHOSTUNREACH || error == ENETUNREACH || error == ENETDOWN ||
         error == EHOSTDOWN;
}

}  // namespace

bool Connection::can_move(std::uint32_t stream) const {
  return connected() && has_lanes() && over_.empty() && spoiled_.empty() &&
         stream <= lanes_.size() && (stream == 0 || lanes_[stream - 1].fd.valid());
}

std::uint64_t Connection::drain(std::uint32_t stream) {
  const std::uint64_t received = bytes_of(stream).drain(fd_of(stream));
  // The peer has proved on the new connection that it holds the job key.
  if (received == 0) (stream == 0 ? answer_due_ : lanes_[stream - 1].answer_due).clear();
  return received;
}

Fd Connection::move(std::uint32_t stream, Fd fd, std::uint64_t theirs) {
  CHECK(can_move(stream));
  if (!bytes_of(stream).resume(theirs)) {
    break_off(fmt::format("it says that it has {} bytes of a stream, which cannot be", theirs));
    return {};
  }
  if (stream == 0) {
    Fd old = std::exchange(fd_, Fd());
    attach(std::move(fd));
    return old;
  }
  prepare_lane(fd.get());
  return std::exchange(lanes_[stream - 1].fd, std::move(fd));
}

bool Connection::has_early() const {
  if (!connected() || stalled_ || reads_shared_) return false;
  if (source_ == 0) return bytes_.has_early();
  return !misses_lane() && lanes_[source_ - 1].bytes.has_early();
}

bool Connection::lose_path(std::uint32_t stream) {
  if (!has_lanes() || !is_of_path(errno)) return false;
  const std::string why = lane_end(stream, -1);
  bytes_of(stream).set_down();
  const bool others = std::ranges::any_of(
      lanes_, [](const Lane& lane) { return lane.fd.valid() && !lane.bytes.down(); });
  if (bytes_.down() && !others) break_off(why);
  return true;
}

bool Connection::repeat_first() {
  if (writes_shared_) return true;
  if (bytes_.paused()) return false;
  if (!bytes_.repeats() || bytes_.repeat(fd())) return true;
  blocked_ = errno == EAGAIN;
  if (blocked_ || lose_path(0)) return false;
  write_error_ = std::generic_category().message(errno);
  if (stalled_) break_off(write_error_);
  return false;
}

void Connection::note_sent(std::span<const iovec> pieces, std::size_t sent) {
  for (const iovec& piece : pieces) {
    const std::size_t size = std::min(piece.iov_len, sent);
    bytes_.sent({static_cast<const std::byte*>(piece.iov_base), size}, fd());
    sent -= size;
  }
}

}  // namespace thalweg::net
