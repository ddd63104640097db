// A reliable, ordered stream of control messages in one direction, simulated by descriptors:
// messages stay at their sender until they are acknowledged, and packets carry only their numbers.
//
// Every message is one packet, and every packet is acknowledged with the number of the next one
// expected. On a timeout all unacknowledged messages are sent again, and the timeout doubles until
// something is acknowledged. This stands for the TCP connection of the paper, whose signals are
// single packets far apart: fast retransmission does nothing for them, and only the timeout counts.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/units.h"
#include "wire/control_message.h"

namespace thalweg::sim {

class ControlSender {
 public:
  explicit ControlSender(Duration timeout) : timeout_(timeout) {}

  // Returns the number of the message, which the caller must send now.
  std::uint64_t push(wire::ControlMessage message, Time now) {
    if (messages_.empty()) deadline_ = now + timeout_;
    messages_.push_back(std::move(message));
    return first_ + messages_.size() - 1;
  }
  // All messages below `next` have arrived.
  void on_ack(std::uint64_t next, Time now) {
    if (next <= first_) return;
    CHECK(next <= end());
    while (first_ < next) {
      messages_.pop_front();
      ++first_;
    }
    backoff_ = 1;
    deadline_ = now + timeout_;
  }
  // Returns true if the caller must send everything from first() to end() again.
  bool on_timeout(Time now) {
    if (messages_.empty() || now < deadline_) return false;
    backoff_ = std::min(backoff_ * 2, kMostBackoff);
    deadline_ = now + timeout_ * backoff_;
    return true;
  }
  [[nodiscard]] std::optional<Time> next_timeout() const {
    return messages_.empty() ? std::nullopt : std::optional(deadline_);
  }

  [[nodiscard]] std::uint64_t first() const { return first_; }
  [[nodiscard]] std::uint64_t end() const { return first_ + messages_.size(); }
  // Requires first() <= number < end().
  [[nodiscard]] const wire::ControlMessage& message(std::uint64_t number) const {
    CHECK(number >= first_ && number < end());
    return messages_[number - first_];
  }

 private:
  static constexpr std::int64_t kMostBackoff = 100;

  Duration timeout_;
  std::int64_t backoff_ = 1;
  Time deadline_;
  std::uint64_t first_ = 0;  // number of messages_.front()
  std::deque<wire::ControlMessage> messages_;
};

class ControlReceiver {
 public:
  // A packet with this number has arrived. Afterwards call take() for as long as has_next().
  void on_packet(std::uint64_t number) {
    if (number >= next_) arrived_.insert(number);
  }
  [[nodiscard]] bool has_next() const { return arrived_.contains(next_); }
  std::uint64_t take() {
    arrived_.erase(next_);
    return next_++;
  }
  // The number to acknowledge.
  [[nodiscard]] std::uint64_t next() const { return next_; }

 private:
  std::uint64_t next_ = 0;
  std::set<std::uint64_t> arrived_;  // numbers at or above next_
};

}  // namespace thalweg::sim
