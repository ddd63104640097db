// Orders what ranks send one another: each pair of ranks has a connection on which a limited number
// of messages flows at a time, the most urgent first. Over TCP and similar transports every message
// is a flow of its own; on a warm connection it starts with the window that the last one left.
//
// Messages that are sent piece by piece have no turns here: over TCP they share a stream for each
// pair of ranks, over DLCP the endpoints order them (FlowSpec::watcher).
#pragma once

#include <cstdint>
#include <functional>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sim/core/network.h"

namespace thalweg::sim {

// Reports every flow that ends to whoever waits for it, and to one observer.
class FlowEnds {
 public:
  explicit FlowEnds(Network& network);
  void expect(FlowId flow, std::function<void()> then);
  void observe(std::function<void(const FlowResult&)> observer) { observer_ = std::move(observer); }

 private:
  std::unordered_map<FlowId, std::function<void()>> waiting_;
  std::function<void(const FlowResult&)> observer_;
};

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
  // Whether plans send their messages piece by piece, by begin(). Requires a transport that has
  // pieces. The limits above are for send().
  bool in_pieces = false;
  // Whether a message starts with the congestion window of the one before.
  bool warm = true;
  std::uint64_t tag = 0;  // given to every flow
  // The host of each rank; empty: rank r is host r.
  std::vector<Rank> hosts = {};
};

class Connections {
 public:
  Connections(Network& network, FlowEnds& ends, const ConnectionOptions& options)
      : network_(network), ends_(ends), options_(options) {}

  // Sends when the message's turn comes: lower `urgency` first, then in the order of the calls.
  // `then` is called when the last byte has arrived. The flow's completion time counts from here.
  void send(Rank from, Rank to, Bytes size, std::int64_t urgency, std::function<void()> then,
            MessageClass kind = {});

  [[nodiscard]] bool in_pieces() const { return options_.in_pieces; }
  // Whether pieces of a message may arrive in any order.
  [[nodiscard]] bool loses_order() const { return options_.transport->dlcp() != nullptr; }
  [[nodiscard]] std::uint32_t pieces_of(Bytes size) const {
    return options_.transport->pieces_of(static_cast<std::uint64_t>(size.count()));
  }
  // A number for what follows, larger than all before.
  std::uint64_t next_order() { return next_order_++; }
  // Begins a message of which nothing leaves before offer(). The watcher is told what arrives with
  // the cookie; then `then` is called, at the message's end. Lower `urgency` goes first, then lower
  // `order`.
  struct Watched {
    FlowWatcher* watcher = nullptr;
    std::uint64_t cookie = 0;
    std::int64_t urgency = 0;
    std::uint64_t order = 0;
  };
  FlowId begin(Rank from, Rank to, Bytes size, const Watched& watched, std::function<void()> then,
               MessageClass kind);
  void offer(FlowId message, exec::Run pieces) { network_.offer(message, pieces); }

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
    std::vector<Connection*> connections;
    int flowing = 0;
  };

  [[nodiscard]] Rank host_of(Rank rank) const {
    return options_.hosts.empty() ? rank : options_.hosts[rank.index()];
  }
  [[nodiscard]] bool has_room(const Connection& connection) const;
  // Starts the messages that may flow now from that rank, the most urgent first.
  void start_more(Source& source);
  void start_next(Source& source, Connection& connection);

  Network& network_;
  FlowEnds& ends_;
  const ConnectionOptions options_;
  std::unordered_map<std::uint64_t, Connection> connections_;
  std::unordered_map<std::int32_t, Source> sources_;
  std::uint64_t next_order_ = 0;
};

}  // namespace thalweg::sim
