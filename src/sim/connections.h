// What ranks send one another, in order: each pair of ranks has a connection on which a limited
// number of messages flows at a time, the most urgent first. Over TCP and its kin a message is a
// flow of its own, or, on a warm connection, one that starts with the window the last one left.
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/network.h"

namespace thalweg {

// Gives every finished flow to whoever waits for it, and to one observer.
class FlowEnds {
 public:
  explicit FlowEnds(Network& network);
  void expect(FlowId flow, std::function<void()> then);
  void observe(std::function<void(const FlowResult&)> observer) { observer_ = std::move(observer); }

 private:
  std::unordered_map<FlowId, std::function<void()>> waiting_;
  std::function<void(const FlowResult&)> observer_;
};

// What DLCP wants to know of a message (FlowSpec).
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
  std::uint64_t tag = 0;  // of every flow
  // The host of each rank that sends and receives; empty: rank r is host r.
  std::vector<Rank> hosts = {};
};

class Connections {
 public:
  Connections(Network& network, FlowEnds& ends, const ConnectionOptions& options)
      : network_(network), ends_(ends), options_(options) {}

  // Sends as soon as it is its turn: lower `urgency` first, then in the order of the calls. `then`
  // is called when the last byte has arrived.
  void send(Rank from, Rank to, Bytes size, std::int64_t urgency, std::function<void()> then,
            MessageClass kind = {});

 private:
  struct Message {
    std::int64_t urgency = 0;
    std::uint64_t order = 0;
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
    std::vector<Connection*> connections;
    int flowing = 0;
  };

  [[nodiscard]] Rank host_of(Rank rank) const {
    return options_.hosts.empty() ? rank : options_.hosts[rank.index()];
  }
  [[nodiscard]] bool has_room(const Connection& connection) const;
  // Starts what may flow now from that rank, the most urgent message first.
  void start_more(Source& source);
  void start_next(Source& source, Connection& connection);

  Network& network_;
  FlowEnds& ends_;
  const ConnectionOptions options_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::unordered_map<std::int32_t, Source> sources_;
  std::uint64_t next_order_ = 0;
};

}  // namespace thalweg
