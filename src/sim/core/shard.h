// One shard of a network: its hosts and switches, with an event queue, a packet pool and counters
// of their own. It tells other shards what concerns them by post.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "sim/atp/aggregation_switches.h"
#include "sim/core/event_queue.h"
#include "sim/core/fabric.h"
#include "sim/core/post.h"
#include "sim/core/shard_map.h"
#include "sim/hosts/host.h"
#include "sim/observe/oracle.h"

namespace thalweg::sim {

class Shard {
 public:
  static constexpr std::int64_t kNever = Post::kNever;

  // The topology and the map must outlive the shard.
  Shard(const topology::Topology& topology, const NetworkOptions& options, const ShardMap& shards,
        std::size_t index);
  Shard(const Shard&) = delete;
  Shard& operator=(const Shard&) = delete;

  // Runs until nothing is left to do here or the next event lies after `until_ps`.
  void run(std::int64_t until_ps);
  // Takes the letters that shard `from` wrote for this one.
  void receive(std::size_t from, Letters& letters);
  void call_at(Time when, std::function<void()> action);
  // Only void timer events are left, so there is no reason to advance time.
  [[nodiscard]] bool idle() const { return events.size() == hosts.void_timers(); }
  // When the next event is due; kNever if nothing is left to do.
  [[nodiscard]] std::int64_t next_ps();
  void check(bool network_idle, std::vector<std::string>& violations) const;

  NetworkCounters counters;
  EventQueue events;
  Post post;
  Fabric fabric;
  Oracle oracle;
  AggregationSwitches switches;
  Hosts hosts;

 private:
  void handle(const Event& event);
  void call(std::uint32_t index);

  std::vector<std::function<void()>> calls_;
  std::vector<std::uint32_t> free_calls_;
};

}  // namespace thalweg::sim
