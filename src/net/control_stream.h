// Control messages on a TCP connection: framed, numbered, and checked for the job's token and, with
// a job key, for their tags.
//
// What arrives is either a message in its turn or the end of the connection: a stream that makes
// no sense once cannot be trusted again.
//
// TCP repeats a lost segment that no other follows after milliseconds. So what TCP has not seen
// acknowledged also goes by datagram, in copies: whichever comes first counts. What is acknowledged
// is at the peer, so a copy that comes before its predecessors waits until the stream was read. One
// that is not understood is of no use, and nothing else.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "net/fd.h"
#include "net/packet_guard.h"
#include "wire/control_message.h"

namespace thalweg {

class ControlStream {
 public:
  using OnMessage = std::function<void(const ControlMessage&)>;
  // Of a copy.
  static constexpr std::size_t kMaxCopy = 1200;

  // Takes a connected, non-blocking socket. `guard` outlives it; null without a key.
  ControlStream(Fd fd, JobToken job, PacketGuard* guard)
      : fd_(std::move(fd)), job_(job), guard_(guard) {}

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Puts it in line; flush() sends.
  void push(const ControlMessage& message);
  // Sends what the socket takes. Empty, or why the connection is over.
  [[nodiscard]] std::string flush();
  // Bytes are waiting for the socket to take them.
  [[nodiscard]] bool blocked() const { return sent_ < out_.size(); }
  // Copies brought what the stream has yet to bring. A socket that is closed before it is read
  // takes back what the peer has not received yet.
  [[nodiscard]] bool behind() const { return next_stream_ < next_in_; }
  // Reads all there is. Empty, or why the connection is over.
  [[nodiscard]] std::string receive(const OnMessage& on_message);

  // One datagram of the last messages that are not acknowledged, as many as fit, if one that a
  // transfer waits for was put in line since the last call; else nothing. Good until the next
  // push().
  [[nodiscard]] std::span<const std::byte> take_copy();
  // The last message in line is a stop. A copy that ends with one must leave behind the data that
  // it speaks of, in the same queue: its receiver relies on that.
  [[nodiscard]] bool ends_with_stop() const { return ends_with_stop_; }
  struct CopyRead {
    bool good = false;  // false: it is no copy, or not authentic
    // The data before this was sent before the copy: it ended with a stop that was news.
    std::optional<std::uint64_t> data_end = {};
  };
  // A datagram from the peer's take_copy().
  CopyRead receive_copy(std::span<const std::byte> copy, const OnMessage& on_message);
  // A copy waits for its predecessors: receive() may bring them.
  [[nodiscard]] bool early() const { return !early_.empty(); }

 private:
  // By the key, where there is one.
  [[nodiscard]] Refusal judge(std::span<const std::byte> message, const ControlEnvelope& about) {
    return guard_ == nullptr ? Refusal::kNone : guard_->check_control(message, about);
  }
  // Reads the messages that are complete.
  [[nodiscard]] std::string decode(const OnMessage& on_message);
  void keep_for_copy(std::span<const std::byte> message);
  // Takes messages off the front of recent_ as long as `enough` does not hold of the rest.
  template <class Enough>
  void forget_until(Enough enough);
  // Bytes put in line that the peer's system may not have.
  [[nodiscard]] std::size_t unacknowledged() const;

  Fd fd_;
  JobToken job_;
  PacketGuard* guard_;
  std::vector<std::byte> out_;
  std::size_t sent_ = 0;  // of out_
  std::vector<std::byte> in_;
  std::size_t received_ = 0;  // bytes of in_ that hold
  std::uint64_t next_out_ = 0;
  std::uint64_t next_in_ = 0;      // by either way
  std::uint64_t next_stream_ = 0;  // on the stream; at most next_in_
  std::vector<std::byte> recent_;  // the last messages, at most kMaxCopy bytes
  std::vector<std::byte> early_;   // a copy that waits for its predecessors
  bool urgent_ = false;            // a copy is due
  bool ends_with_stop_ = false;
};

// TCP as signals need it: no waiting for more, a dead peer noticed within `timeout_ms`, and lost
// segments repeated soon.
void set_signal_options(int fd, int timeout_ms);

}  // namespace thalweg
