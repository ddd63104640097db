#include "net/control_stream.h"

#include <fmt/format.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "base/check.h"
#include "net/system.h"
#include "net/tcp.h"

namespace thalweg {
namespace {

// More messages cannot be under way: a copy from beyond is none of the peer's.
constexpr std::uint64_t kMostAhead = 4096;

constexpr std::size_t kReadSize = std::size_t{1} << 16;
// A peer that reads no signals while this much waits for it has hung.
constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;

std::string broken(const char* doing, int error_number) {
  return fmt::format("{}: {}", doing, std::generic_category().message(error_number));
}

}  // namespace

void set_signal_options(int fd, int timeout_ms) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, timeout_ms);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  constexpr int kProbes = 4;
  const int seconds = std::max(1, timeout_ms / 1000 / (kProbes + 1));
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, seconds);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
  repeat_soon(fd);
}

void ControlStream::push(const ControlMessage& message) {
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  }
  const ControlEnvelope envelope{job_, next_out_++, guard_ != nullptr};
  const std::size_t size = control_size(message, envelope);
  out_.resize(out_.size() + size);
  const std::span<std::byte> bytes = std::span(out_).last(size);
  encode_control(message, envelope, bytes);
  if (guard_ != nullptr) guard_->seal_control(envelope.sequence, bytes);
  keep_for_copy(bytes);
  ends_with_stop_ = std::holds_alternative<StopMessage>(message);
  urgent_ = urgent_ || !(std::holds_alternative<ReportMessage>(message) ||
                         std::holds_alternative<ConfirmMessage>(message));
}

template <class Enough>
void ControlStream::forget_until(Enough enough) {
  std::size_t old = 0;
  while (old < recent_.size()) {
    std::size_t size = 0;
    CHECK(peek_control(std::span(recent_).subspan(old), size) == WireError::kNone);
    if (enough(recent_.size() - old, size)) break;
    old += size;
  }
  recent_.erase(recent_.begin(), recent_.begin() + static_cast<std::ptrdiff_t>(old));
}

void ControlStream::keep_for_copy(std::span<const std::byte> message) {
  forget_until([&](std::size_t left, std::size_t) { return left + message.size() <= kMaxCopy; });
  if (message.size() <= kMaxCopy) recent_.insert(recent_.end(), message.begin(), message.end());
}

std::size_t ControlStream::unacknowledged() const {
  int with_system = 0;
  if (ioctl(fd(), SIOCOUTQ, &with_system) != 0) return kMaxCopy;
  return out_.size() - sent_ + static_cast<std::size_t>(with_system);
}

std::span<const std::byte> ControlStream::take_copy() {
  if (!std::exchange(urgent_, false)) return {};
  // recent_ ends where the stream does.
  const std::size_t needed = unacknowledged();
  forget_until([&](std::size_t left, std::size_t first) { return left - first < needed; });
  return recent_;
}

ControlStream::CopyRead ControlStream::receive_copy(std::span<const std::byte> copy,
                                                    const OnMessage& on_message) {
  ControlMessage message;
  ControlEnvelope about;
  std::optional<std::uint64_t> data_end;
  while (!copy.empty()) {
    std::size_t size = 0;
    if (peek_control(copy, size) != WireError::kNone || copy.size() < size) return {};
    if (decode_control(copy.first(size), message, about) != WireError::kNone) return {};
    if (about.job != job_ || about.keyed != (guard_ != nullptr)) return {};
    if (about.sequence > next_in_ + kMostAhead) return {};
    if (about.sequence > next_in_) {
      const std::span<const std::byte> kept = copy.first(std::min(copy.size(), kMaxCopy));
      early_.assign(kept.begin(), kept.end());
      return {true, std::nullopt};
    }
    data_end.reset();
    if (about.sequence == next_in_) {
      if (judge(copy.first(size), about) != Refusal::kNone) return {};
      ++next_in_;
      on_message(message);
      if (const auto* stop = std::get_if<StopMessage>(&message)) data_end = stop->end_sequence;
    }
    copy = copy.subspan(size);
  }
  return {true, data_end};
}

std::string ControlStream::flush() {
  while (sent_ < out_.size()) {
    const ssize_t sent = send(fd(), &out_[sent_], out_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return broken("cannot send signals", errno);
      if (out_.size() - sent_ > kMaxWaiting) return "it does not read our signals";
      break;
    }
    sent_ += static_cast<std::size_t>(sent);
  }
  return {};
}

std::string ControlStream::receive(const OnMessage& on_message) {
  while (true) {
    if (in_.size() < received_ + kReadSize) in_.resize(received_ + kReadSize);
    const ssize_t size = recv(fd(), &in_[received_], in_.size() - received_, 0);
    if (size < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK) break;
      return broken("the connection broke", errno);
    }
    if (size == 0) return "it closed the connection";
    received_ += static_cast<std::size_t>(size);
    if (std::string wrong = decode(on_message); !wrong.empty()) return wrong;
    if (static_cast<std::size_t>(size) < kReadSize) break;
  }
  if (early()) {
    const std::vector<std::byte> copy = std::exchange(early_, {});
    receive_copy(copy, on_message);
  }
  return {};
}

std::string ControlStream::decode(const OnMessage& on_message) {
  std::span<const std::byte> left = std::span<const std::byte>(in_).first(received_);
  ControlMessage message;
  ControlEnvelope about;
  std::string wrong;
  while (wrong.empty()) {
    std::size_t size = 0;
    WireError error = peek_control(left, size);
    if (error == WireError::kShort || (error == WireError::kNone && left.size() < size)) break;
    if (error == WireError::kNone) error = decode_control(left.first(size), message, about);
    if (error != WireError::kNone) {
      wrong = fmt::format("it sent a signal that makes no sense ({})", name_of(error));
    } else if (about.job != job_ || about.keyed != (guard_ != nullptr)) {
      wrong = "it sent a signal of another job";
    } else if (about.sequence == next_stream_ && next_stream_ < next_in_) {
      ++next_stream_;  // its copy was here before
      left = left.subspan(size);
    } else if (const Refusal refusal = judge(left.first(size), about); refusal != Refusal::kNone) {
      wrong = fmt::format("a signal came that it did not send here ({})", name_of(refusal));
    } else if (about.sequence != next_stream_) {
      wrong = fmt::format("it sent signal {} where {} was due", about.sequence, next_stream_);
    } else {
      next_in_ = ++next_stream_;
      on_message(message);
      left = left.subspan(size);
    }
  }
  if (!left.empty()) std::memmove(in_.data(), left.data(), left.size());
  received_ = left.size();
  return wrong;
}

}  // namespace thalweg
