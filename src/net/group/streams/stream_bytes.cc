#include "net/group/streams/stream_bytes.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"

namespace thalweg::net {

void StreamBytes::sent(std::span<const std::byte> bytes, int fd) {
  if (!keeps_) return;
  CHECK(again_ == 0);
  sent_ += bytes.size();
  copies_.insert(copies_.end(), bytes.begin(), bytes.end());
  if (kept() >= trim_at_ && !paused_ && !keeps_all_) forget_acknowledged(fd);
}

void StreamBytes::forget_acknowledged(int fd) {
  int unacknowledged = 0;
  if (ioctl(fd, SIOCOUTQ, &unacknowledged) != 0) return;
  // The connection's first bytes may have been a greeting, so this may be more than what is kept.
  const std::size_t keep = static_cast<std::size_t>(std::max(unacknowledged, 0)) + again_;
  if (keep < kept()) copies_begin_ = copies_.size() - keep;
  if (copies_begin_ * 2 >= copies_.size()) {
    copies_.erase(copies_.begin(), copies_.begin() + static_cast<std::ptrdiff_t>(copies_begin_));
    copies_begin_ = 0;
  }
  trim_at_ = kept() + kTrimEvery;
}

bool StreamBytes::repeat(int fd) {
  while (again_ > 0) {
    const ssize_t sent =
        send(fd, copies_.data() + copies_.size() - again_, again_, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    again_ -= static_cast<std::size_t>(sent);
  }
  return true;
}

ssize_t StreamBytes::receive(int fd, std::span<iovec> into) {
  if (has_early()) {
    std::size_t got = 0;
    for (const iovec& piece : into) {
      const std::size_t size = std::min(piece.iov_len, early_.size() - early_begin_);
      if (size > 0) std::memcpy(piece.iov_base, early_.data() + early_begin_, size);
      early_begin_ += size;
      got += size;
    }
    if (!has_early()) {
      early_.clear();
      early_.shrink_to_fit();
      early_begin_ = 0;
    }
    return static_cast<ssize_t>(got);
  }
  if (paused_ || down_) {
    errno = EAGAIN;
    return -1;
  }
  msghdr message{};
  message.msg_iov = into.data();
  message.msg_iovlen = into.size();
  const ssize_t got = recvmsg(fd, &message, MSG_DONTWAIT);
  if (got > 0) received_ += got;
  return got;
}

void StreamBytes::pause() {
  CHECK(keeps_);
  paused_ = true;
}

void StreamBytes::go_on(bool keeps_all) {
  paused_ = false;
  keeps_all_ = keeps_all_ || keeps_all;
}

std::uint64_t StreamBytes::drain(int fd) {
  constexpr std::size_t kRead = std::size_t{256} << 10;
  for (;;) {
    const std::size_t before = early_.size();
    early_.resize(before + kRead);
    const ssize_t got = recv(fd, early_.data() + before, kRead, MSG_DONTWAIT);
    early_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    received_ += got;
  }
  if (received_ <= 0) {
    // At most bytes that are not counted have come. The new connection brings its own.
    early_.clear();
    early_begin_ = 0;
    received_ = 0;
  }
  return static_cast<std::uint64_t>(received_);
}

bool StreamBytes::resume(std::uint64_t theirs) {
  if (theirs > sent_ || sent_ - theirs > kept()) return false;
  again_ = static_cast<std::size_t>(sent_ - theirs);
  copies_begin_ = copies_.size() - again_;
  trim_at_ = again_ + kTrimEvery;
  paused_ = false;
  down_ = false;
  keeps_all_ = false;
  return true;
}

}  // namespace thalweg::net
