// What shards send one another: packets on links between them, and notices of one end of a flow to
// the other.
//
// A shard writes to its own Post while it runs. The others read what is for them when the shard
// does not run, or while it writes the letters of the next window: there are two sets, and flip()
// between windows makes the one that was written the one to read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "sim/core/packet.h"
#include "sim/hosts/incoming_flow.h"

namespace thalweg::sim {

struct PacketLetter {
  std::int64_t time_ps = 0;  // when it arrives at the end of the arc
  std::uint32_t arc = 0;
  Packet packet;
};
// The receiver has all of a flow: the sender learns it at `time_ps`.
struct EndedLetter {
  std::int64_t time_ps = 0;
  FlowId flow;
  Time end;
};
// The sender is done: the receiver may be forgotten from `time_ps` on.
struct ClosedLetter {
  std::int64_t time_ps = 0;
  std::uint32_t incoming = 0;
};
struct Letters {
  std::vector<PacketLetter> packets;
  // Flows that start, in the order of their numbers at the receiver.
  std::vector<std::unique_ptr<IncomingFlow>> flows;
  std::vector<EndedLetter> ended;
  std::vector<ClosedLetter> closed;

  void clear() {
    packets.clear();
    flows.clear();
    ended.clear();
    closed.clear();
  }
  // Whether nothing happens because of these letters. The end of a sender changes nothing.
  [[nodiscard]] bool idle() const { return packets.empty() && ended.empty(); }
};

class Post {
 public:
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  explicit Post(std::size_t shards) {
    for (auto& set : sets_) set.resize(shards);
  }

  void send(std::size_t shard, PacketLetter letter) {
    earliest_ps_ = std::min(earliest_ps_, letter.time_ps);
    writing(shard).packets.push_back(letter);
  }
  void send(std::size_t shard, EndedLetter letter) {
    earliest_ps_ = std::min(earliest_ps_, letter.time_ps);
    writing(shard).ended.push_back(letter);
  }
  void send(std::size_t shard, ClosedLetter letter) { writing(shard).closed.push_back(letter); }
  void send(std::size_t shard, std::unique_ptr<IncomingFlow> flow) {
    writing(shard).flows.push_back(std::move(flow));
  }

  // Requires that the letters that were there to read have been read.
  void flip() {
    written_ ^= 1;
    earliest_ps_ = kNever;
  }
  [[nodiscard]] Letters& letters_for(std::size_t shard) { return sets_[written_ ^ 1][shard]; }
  // The earliest time at which a letter written since the last flip() has an effect.
  [[nodiscard]] std::int64_t earliest_ps() const { return earliest_ps_; }

 private:
  [[nodiscard]] Letters& writing(std::size_t shard) { return sets_[written_][shard]; }

  std::array<std::vector<Letters>, 2> sets_;  // each by the shard that the letters are for
  std::size_t written_ = 0;
  std::int64_t earliest_ps_ = kNever;
};

}  // namespace thalweg::sim
