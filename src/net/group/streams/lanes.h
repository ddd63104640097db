// The state that a connection keeps for its lanes (connection.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "net/group/operation/stream_operation.h"
#include "net/group/streams/stream_bytes.h"
#include "net/io/fd.h"

namespace thalweg::net {

// Shorter payloads go by the first stream.
inline constexpr std::size_t kLeastLaneFrame = std::size_t{4} << 10;
// Bytes that the system should buffer of one stream while another is read.
inline constexpr int kLaneRoom = 2 << 20;

// A stream that has this many bytes that the system has not sent yet gets no other frame: 2 ms at
// the rate that it keeps to (keep_to_line_rate()), so that a slow path is not given what a faster
// one could send sooner.
[[nodiscard]] int lane_backlog(int fd);
// Sets the options of one of several streams.
void prepare_lane(int fd);
// Whether the other end's system has answered nothing for a second, though it was asked several
// times: by segments that were repeated, or by probes. A process that is stopped does not matter,
// because its system answers.
[[nodiscard]] bool is_silent(int fd);

// A stream that carries payloads and no headers.
struct Lane {
  Fd fd;
  std::vector<std::byte> answer_due = {};  // what the peer must still send before its payloads
  std::span<const std::byte> out = {};     // unsent rest of the payload
  std::vector<std::byte> sealed = {};      // holds the payload, if frames are sealed
  std::vector<std::byte> copy = {};  // holds `out` when the operation's memory is no longer ours
  StreamBytes bytes = {};
  bool blocked = false;
  int backlog = 0;  // lane_backlog()
};

// The payloads that streams were given and have not sent completely. Streams send side by side, but
// the executor is told of each send's bytes in their order.
class Loans {
 public:
  using Op = Streamed;
  using Said = std::function<void(Op& op)>;

  // Gives a payload to a stream that has none. The payload follows those of the same send that were
  // lent before.
  void lend(std::uint32_t stream, Op* op, std::uint32_t send, std::size_t bytes) {
    loans_.push_back({stream, op, send, bytes, 0});
  }
  // The stream has sent `bytes` of its payload. Calls `said` when the executor was told.
  void sent(std::uint32_t stream, std::size_t bytes, const Said& said);
  // Bytes of a send that were lent, and that the executor was not told were sent.
  [[nodiscard]] std::size_t of(const Op* op, std::uint32_t send) const;
  void clear() { loans_.clear(); }

 private:
  struct Loan {
    std::uint32_t stream;
    Op* op;
    std::uint32_t send;
    std::size_t left;    // not sent by the stream yet
    std::size_t untold;  // sent, but something before it was not, so the executor does not know
  };
  std::vector<Loan> loans_;  // in the order in which they were lent
};

}  // namespace thalweg::net
