#include "sim/connections.h"

#include "base/check.h"

namespace thalweg {

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
                       std::function<void()> then) {
  Connection& connection = connections_[from.index() << 32 | to.index()];
  connection.waiting.push(
      {.urgency = urgency, .order = next_order_++, .size = size, .then = std::move(then)});
  if (options_.most_at_once == 0 || connection.flowing < options_.most_at_once) {
    start_next(from, to, connection);
  }
}

void Connections::start_next(Rank from, Rank to, Connection& connection) {
  if (connection.waiting.empty()) return;
  const Message message = connection.waiting.top();
  connection.waiting.pop();
  ++connection.flowing;
  const FlowId flow =
      network_.start_flow({.source = from,
                           .target = to,
                           .bytes = static_cast<std::uint64_t>(message.size.count()),
                           .transport = options_.transport,
                           .warm = options_.warm,
                           .tag = options_.tag});
  ends_.expect(flow, [this, from, to, &connection, then = message.then] {
    --connection.flowing;
    start_next(from, to, connection);
    then();
  });
}

}  // namespace thalweg
