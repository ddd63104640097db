#include "net/dlcp/control_stream.h"

#include <fmt/core.h>
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
#include "net/io/system.h"
#include "net/io/tcp.h"

namespace thalweg::net {
namespace {

// No peer has this many messages in flight, so a copy further ahead is not genuine.
constexpr std::uint64_t kMostAhead = 4096;

constexpr std::size_t kReadSize = std::size_t{1} << 16;
// A peer that does not read its signals while this many bytes wait for it has hung.
constexpr std::size_t kMaxWaiting = std::size_t{64} << 20;

std::string broken(const char* doing, int error_number) {
  return fmt::format("{}: {}", doing, std::generic_category().message(error_number));
}

}  // namespace

void ControlStream::push(const wire::ControlMessage& message) {
  if (sent_ == out_.size()) {
    out_.clear();
    sent_ = 0;
  }
  const wire::ControlEnvelope envelope{.job = job_,
                                       .sequence = next_out_++,
                                       .keyed = guard_ != nullptr,
                                       .checked = guard_ == nullptr};
  const std::size_t size = wire::control_size(message, envelope);
  out_.resize(out_.size() + size);
  const std::span<std::byte> bytes = std::span(out_).last(size);
  wire::encode_control(message, envelope, bytes);
  if (guard_ != nullptr) guard_->seal_control(envelope.sequence, bytes);
  keep_for_copy(bytes);
  const auto* stop = std::get_if<wire::StopMessage>(&message);
  stop_queue_ = stop == nullptr ? std::nullopt : std::optional(stop->queue);
  urgent_ = urgent_ || !(std::holds_alternative<wire::ReportMessage>(message) ||
                         std::holds_alternative<wire::ConfirmMessage>(message));
}

template <class Enough>
void ControlStream::forget_until(Enough enough) {
  std::size_t old = 0;
  while (old < recent_.size()) {
    std::size_t size = 0;
    CHECK(wire::peek_control(std::span(recent_).subspan(old), size) == wire::WireError::kNone);
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
  // recent_ and the stream end with the same byte, so the last `needed` bytes are unacknowledged.
  const std::size_t needed = unacknowledged();
  forget_until([&](std::size_t left, std::size_t first) { return left - first < needed; });
  return recent_;
}

ControlStream::CopyRead ControlStream::receive_copy(std::span<const std::byte> copy,
                                                    const OnMessage& on_message) {
  wire::ControlMessage message;
  wire::ControlEnvelope about;
  std::optional<DataEnd> data_end;
  while (!copy.empty()) {
    std::size_t size = 0;
    if (wire::peek_control(copy, size) != wire::WireError::kNone || copy.size() < size) return {};
    if (wire::decode_control(copy.first(size), message, about) != wire::WireError::kNone) return {};
    if (about.job != job_ || !is_sealed(about)) return {};
    if (about.sequence > next_in_ + kMostAhead) return {};
    if (about.sequence > next_in_) {
      const std::span<const std::byte> kept = copy.first(std::min(copy.size(), kMaxCopy));
      early_.assign(kept.begin(), kept.end());
      return {true, std::nullopt};
    }
    data_end.reset();
    if (about.sequence == next_in_) {
      if (judge(copy.first(size), about) != wire::Refusal::kNone) return {};
      ++next_in_;
      on_message(message);
      if (const auto* stop = std::get_if<wire::StopMessage>(&message)) {
        data_end = {stop->end_sequence, stop->queue};
      }
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
  wire::ControlMessage message;
  wire::ControlEnvelope about;
  std::string wrong;
  while (wrong.empty()) {
    std::size_t size = 0;
    wire::WireError error = wire::peek_control(left, size);
    if (error == wire::WireError::kShort || (error == wire::WireError::kNone && left.size() < size))
      break;
    if (error == wire::WireError::kNone)
      error = wire::decode_control(left.first(size), message, about);
    if (error != wire::WireError::kNone) {
      wrong = fmt::format("it sent a signal that makes no sense ({})", wire::name_of(error));
    } else if (about.job != job_ || !is_sealed(about)) {
      wrong = "it sent a signal of another job";
    } else if (about.sequence == next_stream_ && next_stream_ < next_in_) {
      ++next_stream_;  // a copy of it was handled before
      left = left.subspan(size);
    } else if (const wire::Refusal refusal = judge(left.first(size), about);
               refusal != wire::Refusal::kNone) {
      wrong = fmt::format("a signal came that it did not send here ({})", wire::name_of(refusal));
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

}  // namespace thalweg::net
