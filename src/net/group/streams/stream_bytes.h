// What one stream of a connection with lanes remembers of its bytes, so that it can move: go on,
// exactly, over another TCP connection when its interface or cable has died (connection_moves.cc).
//
// Both ends count the bytes of the stream that they have received, whatever TCP connection brought
// them. A sender keeps a copy of what the other end's system has not acknowledged. To move, both
// ends tell each other how many bytes they have, and send what follows again.
//
//   connects                                     accepts
//   connects by another way
//   pauses: neither writes nor forgets copies
//   hello: stream number ─────────────────────▶  pauses, reads the old connection empty
//   reads the old connection empty  ◀──────────  kResume: bytes received
//   kResume: bytes received  ──────────────────▶
//   bytes from there on      ◀────────────────▶  bytes from there on
//
// Why no byte is lost: a sender forgets a byte only when the other end's system has acknowledged
// it, and each end reads its old connection empty after the other end has paused. If a move breaks
// off, both go on as before. The accepting end cannot know whether the other one took its answer,
// and then reads the old connection no more, so it keeps all copies until a later move succeeds.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace thalweg::net {

class StreamBytes {
 public:
  // Call before anything is sent. Without it nothing is copied and the stream cannot move.
  void keep_copies() { keeps_ = true; }
  // Call before anything is received: so many bytes come first that are not counted.
  void expect_uncounted(std::size_t bytes) { received_ = -static_cast<std::int64_t>(bytes); }

  // Sending.
  // The system took these bytes of the stream, to be sent by `fd`.
  void sent(std::span<const std::byte> bytes, int fd);
  // Sends again what a move left to be sent. False: not all of it; errno says why.
  bool repeat(int fd);
  [[nodiscard]] bool repeats() const { return again_ > 0; }
  // It is about to move: nothing may be sent, and nothing is received but what drain() has read.
  [[nodiscard]] bool moving() const { return paused_ || down_; }
  // Nothing may be sent now.
  [[nodiscard]] bool paused() const { return moving() || kept() > kMostKept; }

  // Receiving. Like recvmsg(), of bytes that drain() has read first.
  ssize_t receive(int fd, std::span<iovec> into);
  [[nodiscard]] bool has_early() const { return early_begin_ < early_.size(); }

  // The path of its TCP connection is broken, as the system says.
  void set_down() { down_ = true; }
  [[nodiscard]] bool down() const { return down_; }

  // Moving.
  void pause();
  // The move broke off. `keeps_all`: copies are not forgotten before a later move.
  void go_on(bool keeps_all);
  // Reads all that the system has of a connection that ends. Returns the bytes received so far.
  std::uint64_t drain(int fd);
  // The stream goes on over another connection, whose other end has received so many bytes. False:
  // that cannot be.
  [[nodiscard]] bool resume(std::uint64_t theirs);

 private:
  // Copies are looked through each time that so many bytes came to them.
  static constexpr std::size_t kTrimEvery = std::size_t{256} << 10;
  // More than this is never kept: the stream waits. Only a move that takes long gets there.
  static constexpr std::size_t kMostKept = std::size_t{64} << 20;

  [[nodiscard]] std::size_t kept() const { return copies_.size() - copies_begin_; }
  void forget_acknowledged(int fd);

  bool keeps_ = false;
  bool paused_ = false;
  bool down_ = false;
  bool keeps_all_ = false;

  std::uint64_t sent_ = 0;         // bytes of the stream, ever
  std::vector<std::byte> copies_;  // [copies_begin_...]: the last of them
  std::size_t copies_begin_ = 0;
  std::size_t trim_at_ = kTrimEvery;
  std::size_t again_ = 0;  // so many copies, the last ones, are to be sent again

  std::int64_t received_ = 0;     // by receive() and drain()
  std::vector<std::byte> early_;  // [early_begin_...]: read by drain()
  std::size_t early_begin_ = 0;
};

}  // namespace thalweg::net
