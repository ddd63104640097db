#include "sim/hosts/connections.h"

#include "base/check.h"

namespace thalweg::sim {

FlowEnds::FlowEnds(Network& network) {
  network.on_flow_done([this](const FlowResult& result) {
    if (observer_) observer_(result);
    const auto found = waiting_.find(result.id);
    if (found == waiting_.end()) return;
    const std::function<void()> then = std::move(found->second);
    waiting_.erase(found);
    then();
  });
}

void FlowEnds::expect(FlowId flow, std::function<void()> then) {
  const bool fresh = waiting_.emplace(flow, std::move(then)).second;
  CHECK(fresh, "flow {} is waited for twice", flow.value());
}

void Connections::send(Rank from, Rank to, Bytes size, std::int64_t urgency,
                       std::function<void()> then, MessageClass kind) {
  Source& source = sources_[from.value()];
  const auto [place, fresh] = connections_.try_emplace(from.index() << 32 | to.index());
  Connection& connection = place->second;
  if (fresh) {
    connection.from = from;
    connection.to = to;
    source.connections.push_back(&connection);
  }
  connection.waiting.push({.urgency = urgency,
                           .order = next_order_++,
                           .asked = network_.now(),
                           .size = size,
                           .then = std::move(then),
                           .kind = kind});
  if (options_.most_per_rank != 0) {
    start_more(source);
  } else if (has_room(connection)) {
    start_next(source, connection);
  }
}

FlowId Connections::begin(Rank from, Rank to, Bytes size, const Watched& watched,
                          std::function<void()> then, MessageClass kind) {
  CHECK(options_.in_pieces);
  const FlowId flow = network_.start_flow({.source = host_of(from),
                                           .target = host_of(to),
                                           .bytes = static_cast<std::uint64_t>(size.count()),
                                           .transport = options_.transport,
                                           .tag = options_.tag,
                                           .priority = kind.priority,
                                           .pull = kind.pull,
                                           .watcher = watched.watcher,
                                           .cookie = watched.cookie,
                                           .urgency = watched.urgency,
                                           .order = watched.order});
  ends_.expect(flow, std::move(then));
  return flow;
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
  const FlowId flow =
      network_.start_flow({.source = host_of(connection.from),
                           .target = host_of(connection.to),
                           .bytes = static_cast<std::uint64_t>(message.size.count()),
                           .transport = options_.transport,
                           .warm = options_.warm,
                           .tag = options_.tag,
                           .asked = message.asked,
                           .priority = message.kind.priority,
                           .pull = message.kind.pull});
  ends_.expect(flow, [this, &source, &connection, then = message.then] {
    --connection.flowing;
    --source.flowing;
    if (options_.most_per_rank != 0) {
      start_more(source);
    } else if (!connection.waiting.empty()) {
      start_next(source, connection);
    }
    then();
  });
}

}  // namespace thalweg::sim
