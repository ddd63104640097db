#include "nccl/coll_line.h"

#include <fmt/core.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <string_view>

namespace thalweg::nccl {

Result<bool> CollLine::read(std::vector<CollMessage>& messages) {
  bool ended = false;
  while (!ended) {
    std::array<char, 4096> bytes;
    const ssize_t got = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    ended = got <= 0;
    if (got > 0) in_.append(bytes.data(), static_cast<std::size_t>(got));
    for (std::size_t end = 0; (end = in_.find('\n')) != std::string::npos;) {
      Result<CollMessage> message = coll_message_from(std::string_view(in_).substr(0, end));
      in_.erase(0, end + 1);
      if (!message.ok()) return message.error().within(peer_);
      messages.push_back(std::move(*message));
    }
    if (in_.size() > kMaxCollLine) {
      return Error(ErrorCode::kInternal,
                   fmt::format("{} sent a line of more than {} bytes", peer_, kMaxCollLine));
    }
  }
  return !ended;
}

void CollLine::send(const CollMessage& message) {
  out_ += coll_line_of(message);
  flush();
}

bool CollLine::flush() {
  while (!out_.empty()) {
    const ssize_t sent = ::send(fd_.get(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return false;
    // A stream that is broken ends for read(), too.
    if (sent < 0) out_.clear();
    if (sent > 0) out_.erase(0, static_cast<std::size_t>(sent));
  }
  return true;
}

}  // namespace thalweg::nccl
