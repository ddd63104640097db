#include "sim/hosts/connections.h"

namespace thalweg::sim {

Connections::Connections(Network& network, const ConnectionOptions& options)
    : network_(network),
      options_(options),
      sources_(options.hosts.empty() ? static_cast<std::size_t>(network.topology().host_count())
                                     : options.hosts.size()) {}

void Connections::send(Rank from, Rank to, Bytes size, std::int64_t urgency,
                       std::function<void()> then, MessageClass kind) {
  Source& source = sources_[from.index()];
  const auto [place, fresh] = source.by_target.try_emplace(to.value());
  Connection& connection = place->second;
  if (fresh) {
    connection.from = from;
    connection.to = to;
    source.connections.push_back(&connection);
  }
  connection.waiting.push({.urgency = urgency,
                           .order = source.next_order++,
                           .asked = network_.now(host_of(from)),
                           .size = size,
                           .then = std::move(then),
                           .kind = kind});
  if (options_.most_per_rank != 0) {
    start_more(source);
  } else if (has_room(connection)) {
    start_next(source, connection);
  }
}

bool Connections::has_room(const Connection& connection) const {
  return options_.most_at_once == 0 || connection.flowing < options_.most_at_once;
}

void Connections::start_more(Source& source) {
  while (source.flowing < options_.most_per_rank) {
    Connection* best = nullptr;
    for (Connection* connection : source.connections) {
      if (connection->waiting.empty() || !has_room(*connection)) continue;
      if (best == nullptr || best->waiting.top() > connection->waiting.top()) best = connection;
    }
    if (best == nullptr) return;
    start_next(source, *best);
  }
}

void Connections::start_next(Source& source, Connection& connection) {
  const Message message = connection.waiting.top();
  connection.waiting.pop();
  ++connection.flowing;
  ++source.flowing;
  const auto go_on = [this, &source, &connection] {
    --connection.flowing;
    --source.flowing;
    if (options_.most_per_rank != 0) {
      start_more(source);
    } else if (!connection.waiting.empty()) {
      start_next(source, connection);
    }
  };
  network_.start_flow({.source = host_of(connection.from),
                       .target = host_of(connection.to),
                       .bytes = static_cast<std::uint64_t>(message.size.count()),
                       .transport = options_.transport,
                       .warm = options_.warm,
                       .tag = options_.tag,
                       .asked = message.asked,
                       .priority = message.kind.priority,
                       .pull = message.kind.pull},
                      {.arrived = message.then, .finished = go_on});
}

}  // namespace thalweg::sim
