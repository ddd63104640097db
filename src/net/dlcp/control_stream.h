// Sends and receives control messages (signals) on a TCP stream. Messages are framed and numbered;
// each is checked for the job's token and, with a job key, for its tag.
//
// Whatever arrives on the stream is either the next message in order or ends the connection: a
// stream that is wrong once cannot be trusted again.
//
// TCP takes milliseconds to repeat a lost segment that no other follows. Messages that TCP has not
// seen acknowledged therefore also go out in datagrams, as copies; whichever arrives first counts.
// What is acknowledged has reached the peer's system, so a copy that arrives before its
// predecessors waits until the stream has been read. A copy that cannot be understood is ignored.
// Reports and confirms alone make no copy, because nothing waits for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/auth/packet_guard.h"
#include "net/io/fd.h"
#include "wire/control_message.h"

namespace thalweg::net {

class ControlStream {
 public:
  using OnMessage = std::function<void(const wire::ControlMessage&)>;
  static constexpr std::size_t kMaxCopy = 1200;  // bytes of a copy

  // Takes ownership of a connected, non-blocking socket. `guard` outlives this; null without a key.
  ControlStream(Fd fd, wire::JobToken job, PacketGuard* guard)
      : fd_(std::move(fd)), job_(job), guard_(guard) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Queues the message; flush() sends it.
  void push(const wire::ControlMessage& message);
  // Sends what the socket takes. Returns an empty text, or why the connection is over.
  [[nodiscard]] std::string flush();
  // Whether bytes wait for the socket to take them.
  [[nodiscard]] bool blocked() const { return sent_ < out_.size(); }
  // Whether copies brought messages that the stream has yet to bring. Do not close the socket then:
  // closing one with unread bytes resets the connection, and what the peer has not received yet is
  // lost.
  [[nodiscard]] bool behind() const { return next_stream_ < next_in_; }
  // Reads all there is and calls `on_message` for each message. Returns an empty text, or why the
  // connection is over.
  [[nodiscard]] std::string receive(const OnMessage& on_message);

  // The payload of a datagram with the last unacknowledged messages, as many as fit. Empty unless a
  // message that a transfer waits for was queued since the last call. Valid until the next push().
  [[nodiscard]] std::span<const std::byte> take_copy();
  // Whether take_copy() would return a copy.
  [[nodiscard]] bool copy_due() const { return urgent_; }
  // The queue that the last queued message names, if it is a stop. A copy that ends with a stop
  // must be sent after the data that the stop reports, in that queue: the receiver relies on the
  // order.
  [[nodiscard]] std::optional<std::uint8_t> stop_queue() const { return stop_queue_; }
  struct DataEnd {
    std::uint64_t sequence = 0;  // all data with lower sequence numbers was sent before the copy
    std::uint8_t queue = 0;      // the queue that the copy took
    bool operator==(const DataEnd&) const = default;
  };
  struct CopyRead {
    bool good = false;                     // false: not a copy, or not authentic
    std::optional<DataEnd> data_end = {};  // set if the copy ended with a stop that was new
  };
  // Reads a datagram that the peer made by take_copy(), and calls `on_message` for each new
  // message.
  CopyRead receive_copy(std::span<const std::byte> copy, const OnMessage& on_message);
  // Whether a copy waits for its predecessors, which receive() may bring.
  [[nodiscard]] bool early() const { return !early_.empty(); }

 private:
  // Checks the message's tag if there is a key.
  [[nodiscard]] wire::Refusal judge(std::span<const std::byte> message,
                                    const wire::ControlEnvelope& about) {
    return guard_ == nullptr ? wire::Refusal::kNone : guard_->check_control(message, about);
  }
  // Whether it ends as every message here must: with a tag if there is a key, else with a checksum.
  [[nodiscard]] bool is_sealed(const wire::ControlEnvelope& about) const {
    return guard_ != nullptr ? about.keyed : about.checked;
  }
  // Handles the complete messages in in_. Returns an empty text, or why the connection is over.
  [[nodiscard]] std::string decode(const OnMessage& on_message);
  void keep_for_copy(std::span<const std::byte> message);
  // Removes messages from the front of recent_ until `enough(left, first)` holds, where `left` is
  // the size of the rest in bytes and `first` that of its first message.
  template <class Enough>
  void forget_until(Enough enough);
  // Queued bytes that the peer's system may not have received.
  [[nodiscard]] std::size_t unacknowledged() const;

  Fd fd_;
  wire::JobToken job_;
  PacketGuard* guard_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;  // bytes of out_ that the socket took
  std::vector<std::byte> in_;
  std::size_t received_ = 0;  // valid bytes of in_
  std::uint64_t next_out_ = 0;
  std::uint64_t next_in_ = 0;      // next message, from the stream or a copy
  std::uint64_t next_stream_ = 0;  // next message on the stream; at most next_in_
  std::vector<std::byte> recent_;  // the last messages, at most kMaxCopy bytes
  std::vector<std::byte> early_;   // a copy that waits for its predecessors
  bool urgent_ = false;            // a copy is due
  std::optional<std::uint8_t> stop_queue_;
};

}  // namespace thalweg::net
