// What a connection with several streams keeps about them (connection.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include <thalweg/communicator.h>

#include "net/fd.h"

namespace thalweg {

// A data frame of a connection with lanes is at most this, so that no lane is busy for long.
inline constexpr std::size_t kLaneFrame = std::size_t{128} << 10;
// Less than this goes by the first stream.
inline constexpr std::size_t kLeastLaneFrame = std::size_t{32} << 10;
// A stream with this much that the system has not sent yet gets no other frame.
inline constexpr int kLaneBacklog = 64 << 10;
// What the system is to take of one stream while another is read.
inline constexpr int kLaneRoom = 2 << 20;

// A stream that carries payloads alone.
struct Lane {
  Fd fd;
  std::vector<std::byte> answer_due = {};  // what the peer has yet to say first
  std::span<const std::byte> out = {};     // what is left of the payload being sent
  std::vector<std::byte> copy = {};  // where `out` is, once the operation's memory is not ours
  bool blocked = false;
  std::uint32_t watching = 0;  // the engine's note: events of epoll; 0: it is not watched
};

// Data that streams were given and have not all sent. They send side by side; the executor hears of
// each send's bytes in their order.
class Loans {
 public:
  using Op = Operation::State;
  using Said = std::function<void(Op& op)>;

  // To a stream that has none. Behind what was lent before of the same send.
  void lend(std::uint32_t stream, Op* op, std::uint32_t send, std::size_t bytes) {
    loans_.push_back({stream, op, send, bytes, 0});
  }
  // The stream has sent so much of it. `said`: the executor was told something.
  void sent(std::uint32_t stream, std::size_t bytes, const Said& said);
  // Of that send, lent and not told.
  [[nodiscard]] std::size_t of(const Op* op, std::uint32_t send) const;
  void clear() { loans_.clear(); }

 private:
  struct Loan {
    std::uint32_t stream;
    Op* op;
    std::uint32_t send;
    std::size_t left;    // with the stream
    std::size_t untold;  // sent, while something before it was not
  };
  std::vector<Loan> loans_;  // in the order in which they were lent
};

}  // namespace thalweg
