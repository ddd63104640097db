// How the workers of one job send the tensors that switches sum.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "sim/core/network.h"

namespace thalweg::sim {

class Aggregation {
 public:
  // `number` is what Network::add_aggregation() returned for this spec; `tag` is given to the job's
  // flows.
  Aggregation(Network& network, AggregationSpec spec, std::int32_t number, std::uint64_t tag)
      : network_(network), spec_(std::move(spec)), number_(number), tag_(tag) {}

  // Sends the worker's next tensor and calls `then` when the worker has the sum. All workers of the
  // job send the same tensors in the same order.
  void send(Rank worker, Bytes size, std::function<void()> then) {
    const Rank target = spec_.workers[worker.index()];
    network_.start_flow({.source = other_end(target),
                         .target = target,
                         .bytes = static_cast<std::uint64_t>(size.count()),
                         .transport = spec_.transport,
                         .tag = tag_,
                         .aggregation = number_,
                         .worker = worker.value()},
                        {.arrived = std::move(then), .finished = {}});
  }

 private:
  // Returns the host to name as the source of a flow to `target`: a server, or another worker where
  // a switch sends the sums. Network::add_aggregation() has checked that there is one.
  [[nodiscard]] Rank other_end(Rank target) const {
    for (const Rank server : spec_.servers) {
      if (server != target) return server;
    }
    return spec_.workers[spec_.workers.front() == target ? 1 : 0];
  }

  Network& network_;
  const AggregationSpec spec_;
  const std::int32_t number_;
  const std::uint64_t tag_;
};

}  // namespace thalweg::sim
