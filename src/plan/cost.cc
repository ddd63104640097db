#include "plan/cost.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <queue>
#include <span>
#include <unordered_map>

#include "base/check.h"
#include "plan/max_min.h"
#include "plan/progress.h"

namespace thalweg::plan {
namespace {

using TransferIndex = std::uint32_t;
using Seconds = double;

constexpr Seconds kNever = std::numeric_limits<Seconds>::infinity();

// The connection from one rank to another.
struct Connection {
  std::vector<MaxMinFair::Use> uses;
  Seconds delay = 0;
  // Ready transfers; the first in plan order is on top.
  std::priority_queue<TransferIndex, std::vector<TransferIndex>, std::greater<>> ready;
  bool busy = false;  // a transfer is starting or flowing
  Seconds last_ready = -1;
};

struct Flow {
  TransferIndex transfer = 0;
  std::uint32_t connection = 0;
  Seconds start = 0;
  Seconds since = 0;  // the time for which bytes_left holds
  double bytes_left = 0;
};

enum class EventKind : std::uint8_t { kStart, kArrive };

struct Event {
  Seconds at = 0;
  EventKind kind = EventKind::kStart;
  TransferIndex transfer = 0;
  bool operator>(const Event& o) const { return at != o.at ? at > o.at : transfer > o.transfer; }
};

class FluidRun {
 public:
  FluidRun(const Plan& plan, const Accounting& accounting, const topology::Topology& topology,
           const topology::Routing& routing, const CostOptions& options)
      : plan_(plan),
        options_(options),
        quantum_(accounting.slowest_arc_time.s() * options.resolution),
        rates_of_arcs_(capacities(topology)),
        progress_(plan),
        ready_at_(plan.transfers.size(), 0) {
    connect(routing);
  }

  CostEstimate run() {
    for (Rank rank(0); rank.value() < plan_.ranks; ++rank) {
      progress_.start(rank, [&](std::size_t ready) { queue(ready, 0); });
    }
    while (!events_.empty() || !flows_.empty()) step();
    CHECK(arrived_ == plan_.transfers.size(), "{} of {} transfers arrived", arrived_,
          plan_.transfers.size());
    estimate_.total = Duration::seconds(finish_);
    return std::move(estimate_);
  }

 private:
  static std::vector<double> capacities(const topology::Topology& topology) {
    std::vector<double> result(topology.arc_count());
    for (std::size_t a = 0; a < result.size(); ++a) {
      const topology::ArcId arc(static_cast<std::int32_t>(a));
      result[a] = topology.arc(arc).spec.rate.bytes_per_second();
    }
    return result;
  }

  void connect(const topology::Routing& routing) {
    std::unordered_map<std::uint64_t, std::uint32_t> ids;
    connection_of_.reserve(plan_.transfers.size());
    for (const PlanTransfer& t : plan_.transfers) {
      const std::uint64_t key = t.source.index() << 32 | t.target.index();
      const auto [entry, fresh] = ids.try_emplace(key, connections_.size());
      if (fresh) {
        Connection connection;
        for (const topology::ArcShare& share : routing.shares(t.source, t.target)) {
          connection.uses.push_back({.arc = static_cast<std::uint32_t>(share.arc.value()),
                                     .weight = static_cast<float>(share.fraction)});
        }
        connection.delay = routing.delay(t.source, t.target).s();
        connections_.push_back(std::move(connection));
      }
      connection_of_.push_back(entry->second);
    }
  }

  void queue(std::size_t transfer, Seconds now) {
    ready_at_[transfer] = now;
    const std::uint32_t c = connection_of_[transfer];
    connections_[c].ready.push(static_cast<TransferIndex>(transfer));
    if (!connections_[c].busy) start_next(c, now, options_.per_message.s());
  }

  void start_next(std::uint32_t c, Seconds now, Seconds overhead) {
    Connection& connection = connections_[c];
    connection.busy = true;
    const TransferIndex transfer = connection.ready.top();
    connection.ready.pop();
    connection.last_ready = ready_at_[transfer];
    events_.push({.at = now + overhead, .kind = EventKind::kStart, .transfer = transfer});
  }

  void begin_flow(TransferIndex transfer, Seconds now) {
    const Bytes size = plan_.size_of(plan_.transfers[transfer].chunk);
    flows_.push_back({.transfer = transfer,
                      .connection = connection_of_[transfer],
                      .start = now,
                      .since = now,
                      .bytes_left = static_cast<double>(size.count())});
    stale_ = true;
  }

  void end_flow(const Flow& flow, Seconds now) {
    Connection& connection = connections_[flow.connection];
    events_.push(
        {.at = now + connection.delay, .kind = EventKind::kArrive, .transfer = flow.transfer});
    if (options_.timeline) {
      estimate_.timeline.push_back({.transfer = flow.transfer,
                                    .start = Time::at(Duration::seconds(flow.start)),
                                    .end = Time::at(Duration::seconds(now))});
    }
    connection.busy = false;
    if (connection.ready.empty()) return;
    const bool same_message = ready_at_[connection.ready.top()] == connection.last_ready;
    start_next(flow.connection, now, same_message ? 0 : options_.per_follow_up.s());
  }

  void arrive(TransferIndex transfer, Seconds now) {
    ++arrived_;
    finish_ = std::max(finish_, now);
    progress_.arrive(transfer, [&](std::size_t ready) { queue(ready, now); });
  }

  void solve_rates() {
    uses_.clear();
    for (const Flow& flow : flows_) uses_.emplace_back(connections_[flow.connection].uses);
    rates_.resize(flows_.size());
    rates_of_arcs_.solve(uses_, rates_);
    ++estimate_.rate_computations;
    stale_ = false;
  }

  // Advances to the next instant at which anything starts, ends or arrives, and handles everything
  // within a quantum of it. Each event keeps its own exact time; only the rates change together, at
  // the first event.
  void step() {
    if (stale_) solve_rates();
    Seconds next = events_.empty() ? kNever : events_.top().at;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      next = std::min(next, flows_[f].since + flows_[f].bytes_left / rates_[f]);
    }
    const Seconds horizon = next + quantum_;
    std::size_t kept = 0;
    for (std::size_t f = 0; f < flows_.size(); ++f) {
      Flow flow = flows_[f];
      const Seconds end = flow.since + flow.bytes_left / rates_[f];
      if (end <= horizon) {
        end_flow(flow, end);
        continue;
      }
      if (flow.since < next) {
        flow.bytes_left -= rates_[f] * (next - flow.since);
        flow.since = next;
      }
      rates_[kept] = rates_[f];
      flows_[kept++] = flow;
    }
    if (kept < flows_.size()) {
      flows_.resize(kept);
      rates_.resize(kept);
      stale_ = true;
    }
    while (!events_.empty() && events_.top().at <= horizon) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == EventKind::kStart) {
        begin_flow(event.transfer, event.at);
      } else {
        arrive(event.transfer, event.at);
      }
    }
  }

  const Plan& plan_;
  const CostOptions& options_;
  const Seconds quantum_;
  MaxMinFair rates_of_arcs_;
  std::vector<Connection> connections_;
  std::vector<std::uint32_t> connection_of_;  // [transfer]
  PlanProgress progress_;
  std::vector<Seconds> ready_at_;  // [transfer]
  Seconds finish_ = 0;             // time of the last arrival
  std::size_t arrived_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::vector<Flow> flows_;
  std::vector<double> rates_;  // [flow], bytes per second
  bool stale_ = false;         // flows_ changed since rates_ were computed
  std::vector<std::span<const MaxMinFair::Use>> uses_;
  CostEstimate estimate_;
};

}  // namespace

double host_queue(const CostOptions& options, double rate) {
  return std::clamp(rate * options.queue.s(), static_cast<double>(options.least_queue.count()),
                    static_cast<double>(options.most_queue.count()));
}

CostEstimate estimate_cost(const Plan& plan, const Accounting& accounting,
                           const topology::Topology& topology, const topology::Routing& routing,
                           const CostOptions& options) {
  return FluidRun(plan, accounting, topology, routing, options).run();
}

}  // namespace thalweg::plan
