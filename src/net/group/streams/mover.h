// Mover: lets streams go on over other TCP connections when an interface or a cable dies, and back
// when it returns (stream_bytes.h has the exchange, proto/collective/moving.h the decisions). The
// rank that makes the streams notices and moves them, one at a time, in a thread of its own,
// because connecting by a dead path takes a while and the other streams go on meanwhile.
//
// The mutex of the streams' owner guards it.
#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/units.h"
#include "net/group/streams/streams.h"

namespace thalweg::net {

class Mover {
 public:
  explicit Mover(Streams& streams) : streams_(streams) {}
  ~Mover() { CHECK(!thread_.joinable()); }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  // When look() is to be called, if some stream can move.
  [[nodiscard]] std::optional<Time> next_look() const;
  // Has a stream moved whose path is dead, or whose own path may be back.
  void look(Time now);
  // The other end moves a stream: its hello has come.
  void begin(StreamPeer& peer, std::uint32_t number, CheckedStream stream);
  // Handles an event of a stream on which the other end is to confirm its move. False: it is not
  // one of these.
  bool on_event(int fd);
  [[nodiscard]] bool has_newcomers() const { return !newcomers_.empty(); }
  // Ends the thread. The caller must not hold the mutex.
  void stop();

 private:
  using Lock = Streams::Lock;
  struct Move {
    StreamPeer* peer;
    std::uint32_t stream;
    std::uint32_t way;
  };
  // A stream that the other end has begun to move, and has not confirmed.
  struct Newcomer {
    StreamPeer* peer;
    std::uint32_t number;
    CheckedStream stream;
    std::array<std::byte, wire::kSealedFrameSize> bytes = {};
    std::size_t size = 0;
    bool over = false;
  };

  void look_at(StreamPeer& peer, std::uint32_t stream, Time now);
  void run();
  void carry_out(Lock& lock, const Move& move);
  // The stream goes on by another connection, of whose bytes the other end has `theirs`.
  void go_on_by(StreamPeer& peer, std::uint32_t stream, Fd fd, std::uint64_t theirs);
  // The stream stays where it is. `keeps_all`: as in StreamBytes::go_on().
  void stay(StreamPeer& peer, std::uint32_t stream, bool keeps_all);
  void read_confirmation(Newcomer& newcomer);
  void give_up(Newcomer& newcomer);

  Streams& streams_;
  std::optional<Move> move_;  // what the thread does
  std::condition_variable wanted_;
  std::thread thread_;  // started when it is first needed
  bool stopping_ = false;
  Time look_at_;  // no look at the streams before this
  std::list<Newcomer> newcomers_;
  std::vector<std::pair<Fd, Time>> retired_;  // old sockets of streams that moved, and when
};

}  // namespace thalweg::net
