// What the servers that greet by a key (net/auth/greeting.h) store for each client, and how those
// that are late are closed.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>

#include "base/units.h"
#include "net/auth/greeting.h"

namespace thalweg::net {

struct GreetedClient {
  std::unique_ptr<KeyedStream> stream = {};  // null until the first bytes come
  std::optional<Time> greeted_by = {};       // with a key: when the client must have proved it

  [[nodiscard]] bool has_proved() const {
    return stream && stream->state() == KeyedStream::State::kSealed;
  }
};

// Closes the clients of a server with a key that did not prove it within `limit`. `Server` is a
// StreamServer whose state is a GreetedClient. Returns when to look again.
template <class Server>
std::optional<Time> close_late(Server& server, Time now, Duration limit) {
  std::optional<Time> next;
  for (auto& [number, client] : server.clients()) {
    GreetedClient& greeted = client.state;
    if (greeted.has_proved()) continue;
    if (!greeted.greeted_by) greeted.greeted_by = now + limit;
    if (now >= *greeted.greeted_by) {
      server.close(client);
    } else {
      next = next ? std::min(*next, *greeted.greeted_by) : *greeted.greeted_by;
    }
  }
  server.close_all();
  return next;
}

}  // namespace thalweg::net
