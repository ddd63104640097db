// Orders what ranks send one another: each pair of ranks has a connection on which a limited number
// of messages flows at a time, the most urgent first. Over TCP and similar transports every message
// is a flow of its own; on a warm connection it starts with the window that the last one left. A
// message is followed by the next when its sender has learnt that all of it has arrived.
//
// What a rank sends is kept apart from what others send, in the shard of the rank's host.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/core/network.h"

namespace thalweg::sim {

// The fields of FlowSpec that only DLCP uses.
struct MessageClass {
  std::uint8_t priority = 1;
  bool pull = false;
};

struct ConnectionOptions {
  const TransportFactory* transport = nullptr;
  // Messages that may flow at once from one rank to another; 0: all of them.
  int most_at_once = 1;
  // Messages that may flow at once from one rank to all others; 0: all of them.
  int most_per_rank = 0;
  // Whether a message starts with the congestion window of the one before.
  bool warm = true;
  std::uint64_t tag = 0;  // given to every flow
  // The host of each rank; empty: rank r is host r.
  std::vector<Rank> hosts = {};
};

class Connections {
 public:
  Connections(Network& network, const ConnectionOptions& options);

  [[nodiscard]] Rank host_of(Rank rank) const {
    return options_.hosts.empty() ? rank : options_.hosts[rank.index()];
  }
  // Sends when the message's turn comes: lower `urgency` first, then in the order of the calls.
  // `then` is called at the target, when the last byte has arrived. The flow's completion time
  // counts from here.
  void send(Rank from, Rank to, Bytes size, std::int64_t urgency, std::function<void()> then,
            MessageClass kind = {});

 private:
  struct Message {
    std::int64_t urgency = 0;
    std::uint64_t order = 0;
    Time asked;  // when send() was called
    Bytes size;
    std::function<void()> then;
    MessageClass kind;
    bool operator>(const Message& o) const {
      return urgency != o.urgency ? urgency > o.urgency : order > o.order;
    }
  };
  struct Connection {
    Rank from;
    Rank to;
    std::priority_queue<Message, std::vector<Message>, std::greater<>> waiting;
    int flowing = 0;
  };
  struct Source {
    std::unordered_map<std::int32_t, Connection> by_target;
    std::vector<Connection*> connections;  // in the order in which they were first used
    int flowing = 0;
    std::uint64_t next_order = 0;
  };

  [[nodiscard]] bool has_room(const Connection& connection) const;
  // Starts the messages that may flow now from that rank, the most urgent first.
  void start_more(Source& source);
  void start_next(Source& source, Connection& connection);

  Network& network_;
  const ConnectionOptions options_;
  std::vector<Source> sources_;  // by rank
};

}  // namespace thalweg::sim
